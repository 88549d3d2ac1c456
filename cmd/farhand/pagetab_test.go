package main

import (
	"context"
	"encoding/json"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// pageTab is what steps need of a tab, whatever its engine.
type pageTab interface {
	navigate(ctx context.Context, url string) error
	reload(ctx context.Context) error
	// evaluate returns the value of an expression, which may be a promise.
	evaluate(ctx context.Context, expression string) (json.RawMessage, error)
	click(ctx context.Context, x, y float64) error
	// resize makes the page so large, in a theme if the engine can choose it.
	resize(ctx context.Context, width, height int64, theme string) error
	screenshot(ctx context.Context) ([]byte, error) // a PNG
	// locate sets where the device is; permit decides for its person.
	locate(ctx context.Context, latitude, longitude float64) error
	permit(ctx context.Context, origin, power string, decision browser.PermissionSetting) error
}

// chromiumTab is the tab of the context.
type chromiumTab struct{}

func (chromiumTab) navigate(ctx context.Context, url string) error {
	return chromedp.Do(ctx, chromedp.Navigate(url))
}

func (chromiumTab) reload(ctx context.Context) error { return chromedp.Do(ctx, chromedp.Reload()) }

func (chromiumTab) evaluate(ctx context.Context, expression string) (json.RawMessage, error) {
	return chromedp.Run(ctx, chromedp.Evaluate[json.RawMessage](expression, chromedp.EvalAwaitPromise))
}

func (chromiumTab) click(ctx context.Context, x, y float64) error {
	return chromedp.Do(ctx, chromedp.MouseClickXY(x, y))
}

func (chromiumTab) resize(ctx context.Context, width, height int64, theme string) error {
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, height)); err != nil {
		return err
	}
	return tellTab(ctx, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: theme}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}})
}

func (chromiumTab) screenshot(ctx context.Context) ([]byte, error) {
	return chromedp.Run(ctx, chromedp.CaptureScreenshot())
}

func (chromiumTab) locate(ctx context.Context, latitude, longitude float64) error {
	accuracy := 25.0
	return tellTab(ctx, emulation.SetGeolocationOverride, emulation.SetGeolocationOverrideParams{
		Latitude: &latitude, Longitude: &longitude, Accuracy: &accuracy,
	})
}

func (chromiumTab) permit(ctx context.Context, origin, power string, decision browser.PermissionSetting) error {
	return tellTab(ctx, browser.SetPermission, browser.SetPermissionParams{
		Permission: &browser.PermissionDescriptor{Name: power}, Setting: decision, Origin: origin,
	})
}

// tellTab sends a command of Chromium's protocol to the tab of the context.
func tellTab[P, R any](ctx context.Context, method cdp.Command[P, R], params P) error {
	_, err := cdp.Call(ctx, chromedp.FromContext(ctx).Target, method, params)
	return err
}

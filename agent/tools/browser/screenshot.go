package browser

import (
	"context"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"

	"github.com/farhand/farhand/registry"
)

// pictures are the ways to make one, the best first.
var pictures = [...]struct {
	format  page.CaptureScreenshotFormat
	mime    string
	quality int64
	scale   float64
}{
	{page.CaptureScreenshotFormatPng, "image/png", 0, 1},
	{page.CaptureScreenshotFormatJpeg, "image/jpeg", 80, 1},
	{page.CaptureScreenshotFormatJpeg, "image/jpeg", 50, 1},
	{page.CaptureScreenshotFormatJpeg, "image/jpeg", 40, 0.5},
}

// screenshot returns a picture of what is in the window, small enough to travel within a result.
func (t *tab) screenshot(ctx context.Context) (registry.Part, error) {
	for _, p := range pictures {
		params := page.CaptureScreenshotParams{Format: p.format}
		if p.quality > 0 {
			params.Quality = &p.quality
		}
		if p.scale != 1 {
			layout, err := cdp.Call(ctx, t.wire, page.GetLayoutMetrics, cdp.Empty{})
			if err != nil {
				return registry.Part{}, err
			}
			v := layout.CSSVisualViewport
			params.Clip = &page.Viewport{X: v.PageX, Y: v.PageY, Width: v.ClientWidth, Height: v.ClientHeight,
				Scale: p.scale}
		}
		shot, err := cdp.Call(ctx, t.wire, page.CaptureScreenshot, params)
		if err != nil {
			return registry.Part{}, err
		}
		if len(shot.Data) <= registry.MaxInlinePart {
			return registry.Part{Type: registry.PartImage, MIMEType: p.mime, Name: "screenshot",
				Data: shot.Data, Size: int64(len(shot.Data))}, nil
		}
	}
	return registry.Part{}, failure("the picture is too large")
}

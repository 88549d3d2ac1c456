package browser

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"

	"github.com/farhand/farhand/agent/tools/internal/localtool"
	"github.com/farhand/farhand/registry"
)

// do performs a call in a running browser.
func (c *chromium) do(ctx context.Context, asked call) (registry.Result, error) {
	if err := c.sync(ctx); err != nil {
		return registry.Result{}, err
	}
	switch asked.Action {
	case "status", "start":
		return c.status()
	case "open":
		return c.open(ctx, asked.URL)
	}
	t, err := c.tab(asked.TargetID)
	if err != nil {
		return registry.Result{}, err
	}
	if asked.Action == "navigate" {
		return c.visit(ctx, t, asked.URL)
	}
	guarded, cancel := t.guard(ctx)
	defer cancel()
	res, err := c.use(guarded, t, asked)
	if t.hasCrashed() && !c.lost() {
		return registry.Result{}, t.lost()
	}
	return res, err
}

// lost returns the error for calls on a tab that has crashed.
func (t *tab) lost() error {
	return failure("the page of tab " + t.name + " crashed: navigate the tab to a page again")
}

// use performs a call on the page of a tab.
func (c *chromium) use(ctx context.Context, t *tab, asked call) (registry.Result, error) {
	switch asked.Action {
	case "act":
		return c.act(ctx, t, *asked.Request)
	case "screenshot":
		return c.screenshot(ctx, t)
	default:
		text, err := t.snapshot(ctx)
		return registry.Result{Success: true, Output: t.where() + "\n" + text}, err
	}
}

// open opens a page in a new tab, or in a tab that has shown no page yet.
func (c *chromium) open(ctx context.Context, address string) (registry.Result, error) {
	if i := slices.IndexFunc(c.tabs, func(t *tab) bool { return t.fresh && !t.hasCrashed() }); i >= 0 {
		c.current = c.tabs[i]
		return c.visit(ctx, c.current, address)
	}
	t, err := c.newTab(ctx)
	if err != nil {
		return registry.Result{}, err
	}
	return c.visit(ctx, t, address)
}

// visit loads a page in a tab, and returns which page that led to.
func (c *chromium) visit(ctx context.Context, t *tab, address string) (registry.Result, error) {
	if t.hasCrashed() {
		fresh, err := c.replace(ctx, t)
		if err != nil {
			return registry.Result{}, err
		}
		t = fresh
	}
	guarded, cancel := t.guard(ctx)
	defer cancel()
	err := t.load(guarded, address)
	if errors.Is(err, errLogin) {
		// Chromium forgets the proxy's password when its network process crashes.
		if err = t.authenticateToProxy(guarded, c.proxy); err == nil {
			err = t.load(guarded, address)
		}
	}
	if t.hasCrashed() && !c.lost() {
		return registry.Result{}, t.lost()
	}
	if err != nil {
		return registry.Result{}, err
	}
	return c.arrived(ctx, t, "")
}

// replace closes a crashed tab, and opens a new one with its name.
func (c *chromium) replace(ctx context.Context, t *tab) (*tab, error) {
	c.drop(t)
	fresh, err := c.newTab(ctx)
	if err != nil {
		return nil, err
	}
	fresh.name = t.name
	return fresh, nil
}

// act performs an act on an element, waits until the page settles, and returns which page the tab then shows.
func (c *chromium) act(ctx context.Context, t *tab, r request) (registry.Result, error) {
	if err := t.act(ctx, r); err != nil {
		return registry.Result{}, err
	}
	if !t.settle(ctx, settleTimeout) && ctx.Err() == nil {
		c.notes.add("the page is still loading")
	}
	known := slices.Clone(c.tabs)
	res, err := c.arrived(ctx, t, "Done. ")
	for _, other := range c.tabs {
		if err == nil && !slices.Contains(known, other) {
			res.Output += "\nThe page opened a tab. " + other.where()
		}
	}
	return res, err
}

// arrived returns which page a tab shows.
func (c *chromium) arrived(ctx context.Context, t *tab, before string) (registry.Result, error) {
	if err := c.sync(ctx); err != nil {
		return registry.Result{}, err
	}
	if !slices.Contains(c.tabs, t) {
		return registry.Result{Success: true, Output: before + "The tab " + t.name + " was closed by its page."}, nil
	}
	return localtool.Result(before+t.where(), t.shown())
}

// screenshot takes a screenshot of a tab.
func (c *chromium) screenshot(ctx context.Context, t *tab) (registry.Result, error) {
	if _, err := cdp.Call(ctx, t.wire, page.BringToFront, cdp.Empty{}); err != nil {
		return registry.Result{}, err
	}
	part, err := t.screenshot(ctx)
	if err != nil {
		return registry.Result{}, err
	}
	return registry.Result{Success: true, Output: "Screenshot of " + t.where(), Parts: []registry.Part{part}}, nil
}

// shown is the structured description of a tab.
type shown struct {
	TargetID string `json:"targetId"`
	Title    string `json:"title"`
	URL      string `json:"url"`
	Current  bool   `json:"current,omitempty"`
}

func (t *tab) shown() shown {
	return shown{TargetID: t.name, Title: short(t.title, maxShown), URL: short(t.url, maxShownURL)}
}

// status lists the tabs.
func (c *chromium) status() (registry.Result, error) {
	lines := []string{"The browser is running."}
	said := struct {
		Running bool    `json:"running"`
		Tabs    []shown `json:"tabs"`
	}{Running: true}
	for _, t := range c.tabs {
		s, line := t.shown(), t.where()
		if s.Current = t == c.current; s.Current {
			line += " (current)"
		}
		lines, said.Tabs = append(lines, line), append(said.Tabs, s)
	}
	return localtool.Result(strings.Join(lines, "\n"), said)
}

// pictures are the screenshot formats, best first.
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

// screenshot returns a screenshot of the window that fits inline into a result.
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
		if isTooLong(err) {
			continue
		}
		if err != nil {
			return registry.Part{}, err
		}
		if len(shot.Data) <= registry.MaxInlinePart {
			return registry.Part{Type: registry.PartImage, MIMEType: p.mime, Name: "screenshot",
				Data: shot.Data, Size: int64(len(shot.Data))}, nil
		}
	}
	return registry.Part{}, failure("the screenshot is too large")
}

// notes collects side events for the next answer.
type notes struct {
	mu    sync.Mutex
	lines []string
}

const (
	maxNotes    = 8
	maxShownURL = 300 // bytes
	maxShown    = 300 // bytes of other text of a page
)

// add adds a line, unless there are maxNotes already.
func (n *notes) add(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.lines) < maxNotes {
		n.lines = append(n.lines, line)
	}
}

// drain returns the lines and clears them.
func (n *notes) drain() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	lines := n.lines
	n.lines = nil
	return lines
}

// failure is an error whose text is shown to the model.
type failure string

// Error implements error.
func (f failure) Error() string { return string(f) }

// short returns text in one line, truncated.
func short(text string, bytes int) string {
	cut := len(text) > 16*bytes // the words of a page's text take a multiple of its memory
	if cut {
		text = text[:16*bytes]
	}
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) <= bytes {
		if cut {
			text += "…"
		}
		return text
	}
	for bytes > 0 && !utf8.RuneStart(text[bytes]) {
		bytes--
	}
	return text[:bytes] + "…"
}

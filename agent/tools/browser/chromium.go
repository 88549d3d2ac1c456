package browser

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"github.com/farhand/farhand/internal/egress"
)

// chromium is a running browser with its proxy. Only the holder of the session's turn may call it, one call at a time.
// close and kill may be called at any time.
type chromium struct {
	cfg     Config
	proxy   *egress.Proxy
	process *process
	wire    *chromedp.Browser
	ctx     context.Context // of chromedp, for the browser

	// own is the browser context that all tabs share. It keeps all data in memory. Chromium's own requests are outside
	// of it: they do not have the proxy's password.
	own cdp.BrowserContextID

	cancel  context.CancelFunc
	tabs    []*tab
	current *tab
	made    int // number of tabs opened so far
	notes   notes
	closing sync.Once
}

// Errors for a Chromium process that ended by itself.
var (
	errCrashed = errors.New("the browser crashed and its pages are lost; open a page to start a new browser")
	errMemory  = errors.New("the browser exceeded its memory limit (FARHAND_BROWSER_MEMORY) and was stopped; its " +
		"pages are lost; open a page to start a new browser")
)

// launch starts a browser. ctx only bounds the start.
func (b *Browsers) launch(ctx context.Context) (*chromium, error) {
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	proxy, err := egress.New(b.cfg.Egress)
	if err != nil {
		return nil, err
	}
	process, err := startProcess(b.cfg, b.memory, b.program, b.folder.path, proxy.Addr())
	if err != nil {
		proxy.Close()
		return nil, err
	}
	c := &chromium{cfg: b.cfg, proxy: proxy, process: process}
	allocator, stop := chromedp.NewAllocatorContext(context.Background(), process)
	silent := func(string, ...any) {}
	wired, end := chromedp.NewContext(allocator, chromedp.WithLogf(silent), chromedp.WithErrorf(silent))
	c.ctx, c.cancel = wired, func() { end(); stop() }
	if err := c.prepare(ctx); err != nil {
		crashed, late := c.wire == nil || c.lost(), ctx.Err() != nil && outer.Err() == nil
		c.close()
		switch {
		case crashed:
			err = process.startError()
		case late:
			err = fmt.Errorf("no browser: Chromium did not start within %v", startTimeout)
		}
		return nil, err
	}
	return c, nil
}

// prepare configures the browser: it denies downloads, and authenticates to the proxy.
func (c *chromium) prepare(ctx context.Context) error {
	if err := chromedp.ListenBrowser(c.ctx, c.receive); err != nil {
		return err
	}
	c.wire = chromedp.FromContext(c.ctx).Browser
	before, err := cdp.Call(ctx, c.wire, target.GetTargets, target.GetTargetsParams{})
	if err != nil {
		return err
	}
	own, err := cdp.Call(ctx, c.wire, target.CreateBrowserContext, target.CreateBrowserContextParams{})
	if err != nil {
		return err
	}
	c.own = own.BrowserContextID
	yes := true
	if _, err := cdp.Call(ctx, c.wire, cdpbrowser.SetDownloadBehavior, cdpbrowser.SetDownloadBehaviorParams{
		Behavior: cdpbrowser.SetDownloadBehaviorBehaviorDeny, EventsEnabled: &yes, BrowserContextID: c.own,
	}); err != nil {
		return err
	}
	first, err := c.newTab(ctx)
	if err != nil {
		return err
	}
	for _, info := range before.TargetInfos {
		if info.Type == pageType {
			_, _ = cdp.Call(ctx, c.wire, target.CloseTarget, target.CloseTargetParams{TargetID: info.TargetID})
		}
	}
	return first.authenticateToProxy(ctx, c.proxy)
}

const pageType = "page" // target type of a tab

// receive processes events of the whole browser. It runs on the goroutine that reads, and must not block.
func (c *chromium) receive(event any) {
	if e, ok := event.(*cdpbrowser.EventDownloadWillBegin); ok {
		c.notes.add("a download was blocked (downloads are off): " + short(e.URL, maxShownURL))
	}
}

// lost reports whether Chromium has ended.
func (c *chromium) lost() bool {
	select {
	case <-c.process.done:
		return true
	case <-c.wire.LostConnection:
		return true
	default:
		return false
	}
}

// endReason returns why Chromium has ended.
func (c *chromium) endReason() error {
	if c.process.overMemory.Load() {
		return errMemory
	}
	if c.process.flooded.Load() {
		return errFlood
	}
	return errCrashed
}

// sync updates the tabs to those of Chromium, because pages also open and close tabs. It closes excess tabs. A tab that
// has left for a URL that is not allowed is reset to a blank page.
func (c *chromium) sync(ctx context.Context) error {
	found, err := cdp.Call(ctx, c.wire, target.GetTargets, target.GetTargetsParams{})
	if err != nil {
		return err
	}
	pages := make(map[target.ID]*target.Info)
	for _, info := range found.TargetInfos {
		if info.Type == pageType && info.BrowserContextID == c.own {
			pages[info.TargetID] = info
		}
	}
	for _, t := range slices.Clone(c.tabs) {
		if pages[t.id] == nil {
			c.drop(t)
		}
	}
	for _, info := range found.TargetInfos {
		if pages[info.TargetID] == nil {
			continue
		}
		i := slices.IndexFunc(c.tabs, func(t *tab) bool { return t.id == info.TargetID })
		if i < 0 {
			if err := c.adopt(ctx, info); err != nil {
				return err
			}
			continue
		}
		c.tabs[i].title, c.tabs[i].url = info.Title, info.URL
		if !allowedPage(info.URL) {
			c.notes.add(fmt.Sprintf("tab %s opened a %s: page, which is not allowed; it now shows a blank page",
				c.tabs[i].name, scheme(info.URL)))
			_ = c.tabs[i].blank(ctx)
			c.tabs[i].settle(ctx, settleTimeout)
		}
	}
	return nil
}

// adopt attaches to a tab that a page has opened. If it cannot, it closes the tab.
func (c *chromium) adopt(ctx context.Context, info *target.Info) error {
	why := "there are too many tabs"
	if len(c.tabs) < c.cfg.MaxTabs {
		t, err := c.attach(ctx, info.TargetID)
		if err == nil {
			t.title, t.url, t.fresh = info.Title, info.URL, false
			return nil
		}
		if ctx.Err() != nil || c.lost() {
			return err
		}
		why = "it did not answer"
	}
	c.notes.add("a tab that a page opened was closed: " + why)
	_, err := cdp.Call(ctx, c.wire, target.CloseTarget, target.CloseTargetParams{TargetID: info.TargetID})
	if c.lost() {
		return err
	}
	return nil
}

// newTab opens a blank tab and makes it the current one.
func (c *chromium) newTab(ctx context.Context) (*tab, error) {
	if len(c.tabs) >= c.cfg.MaxTabs {
		return nil, failure(fmt.Sprintf("the limit of %d tabs is reached: navigate in one of them, or stop "+
			"the browser", len(c.tabs)))
	}
	first := len(c.tabs) == 0
	made, err := cdp.Call(ctx, c.wire, target.CreateTarget,
		target.CreateTargetParams{URL: blankPage, BrowserContextID: c.own, NewWindow: &first})
	if err != nil {
		return nil, err
	}
	t, err := c.attach(ctx, made.TargetID)
	if err != nil {
		return nil, err
	}
	t.url, c.current = blankPage, t
	return t, nil
}

// tab returns the tab with this name, and makes it current. An empty name means the current tab.
func (c *chromium) tab(name string) (*tab, error) {
	if name == "" {
		if c.current == nil {
			return nil, failure("no tab is open: open a page first")
		}
		return c.current, nil
	}
	var names []string
	for _, t := range c.tabs {
		if t.name == name {
			c.current = t
			return t, nil
		}
		names = append(names, t.name)
	}
	return nil, failure(fmt.Sprintf("there is no tab %q; use one of: %s", short(name, maxShownURL),
		strings.Join(names, ", ")))
}

// drop removes a tab, and closes it if it still exists.
func (c *chromium) drop(t *tab) {
	t.close()
	c.tabs = slices.DeleteFunc(c.tabs, func(other *tab) bool { return other == t })
	if c.current == t {
		c.current = nil
		if n := len(c.tabs); n > 0 {
			c.current = c.tabs[n-1]
		}
	}
}

// kill ends Chromium. It may be called from any goroutine; pending calls fail immediately.
func (c *chromium) kill() { c.process.kill() }

// close ends the browser and waits until all its processes have ended.
func (c *chromium) close() {
	c.closing.Do(func() {
		c.process.close()
		for _, t := range slices.Clone(c.tabs) {
			c.drop(t)
		}
		c.cancel()
		if c.wire != nil {
			<-c.wire.LostConnection
		}
		c.proxy.Close()
	})
}

const blankPage = "about:blank"

// allowedPage reports whether a tab may show this URL.
func allowedPage(address string) bool {
	switch scheme(address) {
	case "http", "https", "chrome-error", "":
		return true
	default:
		return address == blankPage
	}
}

// scheme returns the scheme of an absolute URL.
func scheme(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		before, _, _ := strings.Cut(address, ":")
		return strings.ToLower(before)
	}
	return u.Scheme
}

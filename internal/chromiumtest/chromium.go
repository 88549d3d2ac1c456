// Package chromiumtest opens pages in a real Chromium for tests.
package chromiumtest

import (
	"context"
	"os/exec"
	"testing"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/farhand/farhand/internal/testkit"
)

// Start starts a browser that lives as long as the test.
func Start(t testing.TB) (browser context.Context) {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("this test needs chromium: run make deps (%v)", err)
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), chromedp.ExecPath(program), chromedp.Headless,
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(testkit.Limit))
	browser, end := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		_ = chromedp.Cancel(browser)
		end()
		stop()
	})
	if err := chromedp.Do(browser); err != nil {
		t.Fatal(err)
	}
	return browser
}

// Page is a tab with storage of its own.
type Page struct {
	t   testing.TB
	ctx context.Context
}

// Open opens an empty tab. Its scripts can call report with a string, which goes to the function of that name. Uncaught
// errors of its scripts fail the test.
func Open(t testing.TB, browser context.Context, report func(text string)) *Page {
	t.Helper()
	ctx, end := chromedp.NewContext(browser, chromedp.WithNewBrowserContext(), chromedp.WithListener(func(event any) {
		switch e := event.(type) {
		case *runtime.EventBindingCalled:
			report(e.Payload)
		case *runtime.EventExceptionThrown:
			t.Errorf("the page has an error: %s %v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception)
		}
	}))
	t.Cleanup(end)
	if _, err := chromedp.Call(ctx, runtime.AddBinding, runtime.AddBindingParams{Name: "report"}); err != nil {
		t.Fatal(err)
	}
	return &Page{t, ctx}
}

// Show navigates to an address.
func (p *Page) Show(url string) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, chromedp.Navigate(url)); err != nil {
		p.t.Fatal(err)
	}
}

// Run evaluates a script.
func (p *Page) Run(script string) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, chromedp.Evaluate[chromedp.Void](script)); err != nil {
		p.t.Fatal(err)
	}
}

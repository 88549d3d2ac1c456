package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// pageBrowser is a tab of a real browser that a person uses, as far as a test can be one. Chromium has more methods.
type pageBrowser struct {
	testing.TB            // of the step that runs
	parentTB   testing.TB // of the browser
	ctx        context.Context
	tab        pageTab
	wire       *chromedp.Target // of Chromium

	mu     sync.Mutex
	noises []string // what a page must not do: dialogs, errors, violations of its policy, the marker of injected code
}

// injected is what injected code of the tests prints, so that it is noticed wherever it runs. Dialogs print it, too.
const injected = "farhand-injected"

const noDialogs = `window.alert = window.confirm = window.prompt = text => console.log("` + injected + `", text)`

// startPageBrowser starts a Chromium that ends with the test. Options are added to its command line.
func startPageBrowser(t testing.TB, options ...chromedp.ExecAllocatorOption) *pageBrowser {
	t.Helper()
	allocator, stop := chromedp.NewExecAllocator(context.Background(), append(append(
		chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("lang", "en-US")), options...)...)
	b := &pageBrowser{TB: t, parentTB: t, tab: chromiumTab{}}
	silent := func(string, ...any) {}
	ctx, end := chromedp.NewContext(allocator, chromedp.WithListener(b.hear), chromedp.WithLogf(silent),
		chromedp.WithErrorf(silent))
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx)
		end()
		stop()
	})
	b.ctx = ctx
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("no Chromium: %v", err)
	}
	b.wire = chromedp.FromContext(ctx).Target
	tellBrowser(b, page.AddScriptToEvaluateOnNewDocument,
		page.AddScriptToEvaluateOnNewDocumentParams{Source: noDialogs})
	return b
}

// tellBrowser sends a command of the protocol to the tab.
func tellBrowser[P, R any](b *pageBrowser, method cdp.Command[P, R], params P) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, waitLimit)
	defer cancel()
	if _, err := cdp.Call(ctx, b.wire, method, params); err != nil {
		b.Fatal(err)
	}
}

func (b *pageBrowser) hear(event any) {
	noise := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text, _ := json.Marshal(e.ExceptionDetails)
		noise = "exception: " + string(text)
	case *runtime.EventConsoleAPICalled:
		text, _ := json.Marshal(e.Args)
		if e.Type == runtime.ConsoleAPICalledTypeError || strings.Contains(string(text), injected) {
			noise = "console: " + string(text)
		}
	case *cdplog.EventEntryAdded:
		// The browser itself reports failed requests, which some steps cause.
		if e.Entry.Level == cdplog.EntryLevelError && e.Entry.Source != cdplog.EntrySourceNetwork {
			noise = "log: " + e.Entry.Text
		}
	}
	if noise != "" {
		b.note(noise)
	}
}

// note adds to what quiet fails for.
func (b *pageBrowser) note(noise string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.noises = append(b.noises, noise)
}

// quiet fails the test if a page did what it must not since the last call.
func (b *pageBrowser) quiet() {
	b.Helper()
	for _, noise := range b.heard() {
		b.Errorf("%s", noise)
	}
}

// heard returns what quiet would fail for.
func (b *pageBrowser) heard() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	noises := b.noises
	b.noises = nil
	return noises
}

// forgiven forgets what the browser reports about attempts that it has refused.
func (b *pageBrowser) forgiven() {
	b.mu.Lock()
	defer b.mu.Unlock()
	var left []string
	for _, noise := range b.noises {
		if strings.Contains(noise, injected) {
			left = append(left, noise)
		}
	}
	b.noises = left
}

// run sends actions to Chromium.
func (b *pageBrowser) run(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	b.do(func(ctx context.Context) error { return chromedp.Do(ctx, steps...) })
}

// do lets the tab do something.
func (b *pageBrowser) do(something func(ctx context.Context) error) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, waitLimit)
	defer cancel()
	if err := something(ctx); err != nil {
		b.Fatalf("%v\n%s", err, b.text())
	}
}

func (b *pageBrowser) open(url string) {
	b.Helper()
	b.do(func(ctx context.Context) error { return b.tab.navigate(ctx, url) })
}

func (b *pageBrowser) openAgain() { b.Helper(); b.do(b.tab.reload) }

func (b *pageBrowser) clickAt(x, y float64) {
	b.Helper()
	b.do(func(ctx context.Context) error { return b.tab.click(ctx, x, y) })
}

// text returns what the page shows.
func (b *pageBrowser) text() string {
	ctx, cancel := context.WithTimeout(b.ctx, 10*time.Second)
	defer cancel()
	shown, _ := evaluate[string](ctx, b, "document.body.innerText")
	return shown
}

func evaluate[T any](ctx context.Context, b *pageBrowser, expression string) (value T, err error) {
	raw, err := b.tab.evaluate(ctx, expression)
	if err != nil {
		return value, err
	}
	if string(raw) == "null" {
		return value, errors.New("there is no value")
	}
	return value, json.Unmarshal(raw, &value)
}

// eval returns the value of an expression, which may be a promise.
func eval[T any](b *pageBrowser, expression string) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, waitLimit)
	defer cancel()
	value, err := evaluate[T](ctx, b, expression)
	if err != nil {
		b.Fatalf("%.300s: %v\n%s", expression, err, b.text())
	}
	return value
}

// until waits for an expression to become true.
func (b *pageBrowser) until(what, expression string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, waitLimit)
	defer cancel()
	for {
		is, err := evaluate[bool](ctx, b, "(async () => !!(await ("+expression+")))()")
		if is {
			return
		}
		if ctx.Err() != nil {
			b.picture("failed")
			b.Fatalf("never: %s (%v)\n%s", what, err, b.text())
		}
		waitFor(ctx, 30*time.Millisecond)
	}
}

// see waits for texts.
func (b *pageBrowser) see(texts ...string) {
	b.Helper()
	for _, text := range texts {
		b.until("see "+text, "document.body.innerText.includes("+quoted(text)+")")
	}
}

func (b *pageBrowser) gone(text string) {
	b.Helper()
	b.until("no "+text, "!document.body.innerText.includes("+quoted(text)+")")
}

// press clicks the button, link or choice with a name, as it is read to a person who does not see it.
func (b *pageBrowser) press(name string) {
	b.Helper()
	b.until("press "+name, fmt.Sprintf(`(() => {
		const all = [...(document.querySelector("dialog[open]") ?? document).querySelectorAll("button, a, summary")];
		const name = e => (e.getAttribute("aria-label") ?? e.innerText).replace(/\s+/g, " ").trim();
		const found = all.find(e => name(e) === %s && !e.disabled);
		found?.scrollIntoView({block: "center"});
		found?.click();
		return found;
	})()`, quoted(name)))
}

// fill sets the field with a label to a value.
func (b *pageBrowser) fill(label, value string) {
	b.Helper()
	b.until("field "+label, fmt.Sprintf(`(() => {
		const within = document.querySelector("dialog[open]") ?? document;
		const labelled = [...within.querySelectorAll("label")].find(e => e.innerText.trim().startsWith(%[1]s));
		const field = within.querySelector('[aria-label=' + JSON.stringify(%[1]s) + ']') ?? labelled?.control ??
			labelled?.querySelector("input, select, textarea");
		if (!field) return false;
		const of = {SELECT: HTMLSelectElement, TEXTAREA: HTMLTextAreaElement}[field.tagName] ?? HTMLInputElement;
		field.focus();
		Object.getOwnPropertyDescriptor(of.prototype, "value").set.call(field, %[2]s);
		field.dispatchEvent(new Event("input", {bubbles: true}));
		field.dispatchEvent(new Event("change", {bubbles: true}));
		return true;
	})()`, quoted(label), quoted(value)))
}

func quoted(text string) string {
	b, _ := json.Marshal(text) // strings can be encoded
	return string(b)
}

// size makes the page so many pixels wide, in a theme.
func (b *pageBrowser) size(width int, theme string) {
	b.Helper()
	height := 900
	if width < 500 {
		height = 740
	}
	b.do(func(ctx context.Context) error { return b.tab.resize(ctx, int64(width), int64(height), theme) })
}

// fits fails the test if the page can be scrolled sideways.
func (b *pageBrowser) fits(view string, width int) {
	b.Helper()
	if wider := eval[int](b, "document.documentElement.scrollWidth - innerWidth"); wider > 0 {
		culprits := eval[string](b, `[...document.querySelectorAll("body *")]
			.filter(e => e.getBoundingClientRect().right > innerWidth + 1)
			.slice(0, 5).map(e => e.tagName + "." + e.className).join(" ")`)
		b.Errorf("%s at %d px is %d px too wide: %s", view, width, wider, culprits)
	}
}

// accessible fails the test if axe finds something serious in the page.
func (b *pageBrowser) accessible(view string) {
	b.Helper()
	script, err := os.ReadFile("../../web/node_modules/axe-core/axe.min.js")
	if err != nil {
		b.Fatalf("axe is not installed: run make deps (%v)", err)
	}
	found := eval[[]string](b, string(script)+`;axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations
		.filter(v => v.impact === "serious" || v.impact === "critical")
		.map(v => v.id + ": " + v.nodes.slice(0, 3).map(n => n.target + " " + (n.any[0]?.message ?? "")).join("; ")))`)
	for _, violation := range found {
		b.Errorf("%s: %s", view, violation)
	}
}

// pictureFolder is the variable that names the folder of pictures. Without it, none are taken.
const pictureFolder = "PAGE_PICTURES"

func (b *pageBrowser) takesPictures() bool { return os.Getenv(pictureFolder) != "" }

// widths returns the widths that a view is checked at. Pictures are taken at those that people compare.
func (b *pageBrowser) widths(checked ...int) []int {
	if b.takesPictures() {
		return []int{390, 1024, 1920}
	}
	return checked
}

// picture writes what the page shows to a file.
func (b *pageBrowser) picture(name string) {
	b.Helper()
	if !b.takesPictures() {
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, waitLimit)
	defer cancel()
	png, err := b.tab.screenshot(ctx)
	if err == nil {
		err = os.WriteFile(filepath.Join(os.Getenv(pictureFolder), name+".png"), png, 0o644)
	}
	if err != nil {
		b.Error(err)
	}
}

// tabs presses the key Tab, and notes in window.reached what had the focus.
func (b *pageBrowser) tabs(n int) {
	b.Helper()
	for range n {
		b.run(chromedp.KeyEvent(kb.Tab),
			chromedp.Evaluate[chromedp.Void]("(window.reached ??= new Set()).add(document.activeElement)"))
	}
}

package browser

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/cdp/jsonv2"
	"github.com/chromedp/cdproto/css"
	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/cdproto/inspector"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"github.com/farhand/farhand/internal/egress"
)

// tab is one tab of a browser.
type tab struct {
	name       string // shown to the model
	id         target.ID
	wire       *chromedp.Target
	cancel     context.CancelFunc
	title, url string
	fresh      bool // nothing was loaded yet
	crash      sync.Once
	crashed    chan struct{} // closed when its process has crashed
	unreached  atomic.Bool   // it shows an error of the proxy
	login      atomic.Bool   // it shows a request for a password
	activity   activity
	refs       refs
	notes      *notes
	dialogs    chan *page.EventJavascriptDialogOpening
	answered   chan struct{} // closed when the goroutine that answers dialogs has ended
}

// maxDialogs is the maximum number of pending dialogs. The frames of a page may show several concurrently.
const maxDialogs = 32

// attach connects to a tab. ctx only bounds the connecting.
func (c *chromium) attach(ctx context.Context, id target.ID) (*tab, error) {
	c.made++
	t := &tab{name: "t" + strconv.Itoa(c.made), id: id, fresh: true, notes: &c.notes, activity: newActivity(),
		dialogs:  make(chan *page.EventJavascriptDialogOpening, maxDialogs),
		answered: make(chan struct{}), crashed: make(chan struct{})}
	own, cancel := context.WithCancel(c.ctx)
	wired, end := chromedp.NewContext(own, chromedp.WithTargetID(id), chromedp.WithListener(t.receive))
	t.cancel = func() { cancel(); end() }
	stop := context.AfterFunc(ctx, cancel)
	timer := time.AfterFunc(attachTimeout, cancel)
	err := chromedp.Do(wired)
	late := !stop() || !timer.Stop()
	if late && ctx.Err() == nil {
		err = errors.New("browser: a tab did not answer in time")
	}
	if err != nil {
		t.cancel()
		return nil, err
	}
	t.wire = chromedp.FromContext(wired).Target
	go t.answer(own)
	c.tabs = append(c.tabs, t)
	if c.current == nil {
		c.current = t
	}
	if err := t.prepare(ctx); err != nil {
		c.drop(t)
		return nil, err
	}
	return t, nil
}

// prepare refuses uploads, and disables the events that chromedp enables and the gateway does not read: pages send them
// at any rate and size, such as lines of the console.
func (t *tab) prepare(ctx context.Context) error {
	yes := true
	_, err := cdp.Call(ctx, t.wire, page.SetInterceptFileChooserDialog,
		page.SetInterceptFileChooserDialogParams{Enabled: true, Cancel: &yes})
	if err != nil {
		return err
	}
	for _, method := range [...]string{runtime.CommandDisable, cdplog.CommandDisable, css.CommandDisable} {
		if err := t.wire.Call(ctx, method, cdp.Empty{}, nil); err != nil {
			return err
		}
	}
	return nil
}

// close closes the tab if it still exists, and waits for its goroutine.
func (t *tab) close() {
	t.cancel()
	<-t.answered
}

// receive processes events of the tab. It runs on the goroutine that reads, and must not block.
func (t *tab) receive(event any) {
	switch e := event.(type) {
	case *page.EventJavascriptDialogOpening:
		select {
		case t.dialogs <- e:
		default: // the page hangs until the tab is closed
		}
	case *page.EventFileChooserOpened:
		t.notes.add("the page requested a file upload, which was refused")
	case *inspector.EventTargetCrashed:
		t.crash.Do(func() { close(t.crashed) })
	default:
		if e, ok := event.(*network.EventResponseReceived); ok && e.Type == network.ResourceTypeDocument &&
			e.FrameID == cdp.FrameID(t.id) {
			_, failed := e.Response.Headers[egress.FailedHeader]
			t.unreached.Store(failed)
			t.login.Store(asksForPassword(e.Response))
		}
		t.activity.receive(event)
	}
}

// asksForPassword reports whether a response is one for which browsers show a password dialog. Chromium fails to load
// such pages; its headless shell shows them.
func asksForPassword(r *network.Response) bool {
	if r.Status != http.StatusUnauthorized {
		return r.Status == http.StatusProxyAuthRequired
	}
	for name, value := range r.Headers {
		if strings.EqualFold(name, "WWW-Authenticate") {
			scheme, _, _ := strings.Cut(strings.ToLower(fmt.Sprint(value)), " ")
			return slices.Contains([]string{"basic", "digest"}, scheme)
		}
	}
	return false
}

// hasCrashed reports whether the process of the tab has crashed.
func (t *tab) hasCrashed() bool {
	select {
	case <-t.crashed:
		return true
	default:
		return false
	}
}

// guard returns a context for operations on the tab. It also ends when the tab crashes, because a crashed tab does not
// answer.
func (t *tab) guard(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-t.crashed:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// answer answers dialogs until the tab is closed.
func (t *tab) answer(ctx context.Context) {
	defer close(t.answered)
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-t.dialogs:
			t.dismiss(ctx, e)
		}
	}
}

// dismiss dismisses a dialog, but confirms leaving a page (beforeunload).
func (t *tab) dismiss(ctx context.Context, e *page.EventJavascriptDialogOpening) {
	leave := e.Type == page.DialogTypeBeforeunload
	if !leave {
		t.notes.add(fmt.Sprintf("a dialog of the page (%s) was dismissed: %q", e.Type,
			short(e.Message, maxShown)))
	}
	_, _ = cdp.Call(ctx, t.wire, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: leave})
}

// blank navigates the tab to a blank page.
func (t *tab) blank(ctx context.Context) error {
	_, err := cdp.Call(ctx, t.wire, page.Navigate, page.NavigateParams{URL: blankPage})
	t.title, t.url = "", blankPage
	return err
}

// authenticateToProxy makes Chromium authenticate to the proxy. Chromium then remembers the password for all its tabs.
func (t *tab) authenticateToProxy(ctx context.Context, proxy *egress.Proxy) error {
	auth, stopAuth := t.wire.Subscribe(fetch.AuthRequired.Method)
	defer stopAuth()
	paused, stopPaused := t.wire.Subscribe(fetch.RequestPaused.Method)
	defer stopPaused()
	yes := true
	if _, err := cdp.Call(ctx, t.wire, fetch.Enable, fetch.EnableParams{HandleAuthRequests: &yes,
		Patterns: []*fetch.RequestPattern{{URLPattern: egress.HelloURL + "*"}}}); err != nil {
		return err
	}
	loaded := make(chan error, 1)
	go func() {
		_, err := cdp.Call(ctx, t.wire, page.Navigate, page.NavigateParams{URL: egress.HelloURL})
		loaded <- err
	}()
	for done := false; !done; {
		select {
		case raw := <-auth:
			if err := t.authenticate(ctx, raw, proxy.Password()); err != nil {
				return err
			}
		case raw := <-paused:
			if err := t.proceed(ctx, raw); err != nil {
				return err
			}
		case err := <-loaded:
			if err != nil {
				return err
			}
			done = true
		}
	}
	if !proxy.Greeted() {
		return errors.New("browser: Chromium does not use the gateway's proxy")
	}
	if _, err := cdp.Call(ctx, t.wire, fetch.Disable, cdp.Empty{}); err != nil {
		return err
	}
	err := t.blank(ctx)
	t.settle(ctx, settleTimeout)
	return err
}

// authenticate answers an authentication request: with the password if it comes from the proxy, otherwise it cancels
// it.
func (t *tab) authenticate(ctx context.Context, raw jsonv2.Value, password string) error {
	var e fetch.EventAuthRequired
	if err := jsonv2.Unmarshal(raw, &e, chromedp.DefaultUnmarshalOptions); err != nil {
		return err
	}
	answer := fetch.AuthChallengeResponse{Response: fetch.AuthChallengeResponseResponseCancelAuth}
	if e.AuthChallenge != nil && e.AuthChallenge.Source == fetch.AuthChallengeSourceProxy {
		answer = fetch.AuthChallengeResponse{Response: fetch.AuthChallengeResponseResponseProvideCredentials,
			Username: egress.User, Password: password}
	}
	_, err := cdp.Call(ctx, t.wire, fetch.ContinueWithAuth,
		fetch.ContinueWithAuthParams{RequestID: e.RequestID, AuthChallengeResponse: &answer})
	return err
}

// proceed continues a paused request.
func (t *tab) proceed(ctx context.Context, raw jsonv2.Value) error {
	var e fetch.EventRequestPaused
	if err := jsonv2.Unmarshal(raw, &e, chromedp.DefaultUnmarshalOptions); err != nil {
		return err
	}
	_, err := cdp.Call(ctx, t.wire, fetch.ContinueRequest, fetch.ContinueRequestParams{RequestID: e.RequestID})
	return err
}

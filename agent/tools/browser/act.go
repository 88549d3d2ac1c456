package browser

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/cdp/jsonv2"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// script contains the functions that are called on elements. They run in an isolated world, so a page cannot change
// them.
//
//go:embed act.js
var script string

const (
	worldName = "farhand"
	maxTyped  = 2000 // characters; each is a key press
)

// request is the act that a model requests.
type request struct {
	Kind      string `json:"kind"`
	Ref       string `json:"ref"`
	Text      string `json:"text"`
	TargetRef string `json:"targetRef"`
}

// act performs a request on an element of the last snapshot.
func (t *tab) act(ctx context.Context, r request) error {
	el, err := t.resolve(ctx, r.Ref)
	if err != nil {
		return err
	}
	switch r.Kind {
	case "click":
		return el.click(ctx)
	case "fill":
		return el.callFunction(ctx, "fill", r.Text)
	case "type":
		return el.typeKeys(ctx, r.Text)
	case "hover":
		return el.hover(ctx)
	case "drag":
		return el.drag(ctx, r.TargetRef)
	default:
		return failure(fmt.Sprintf("there is no kind of act %q", short(r.Kind, maxShown)))
	}
}

// graspedElement is an element that was resolved and scrolled into view.
type graspedElement struct {
	tab    *tab
	ref    string
	object runtime.RemoteObjectID
	Gone   bool   `json:"gone"`
	Tag    string `json:"tag"`
	Failed string `json:"failed"` // why the last function failed
}

// resolve resolves a ref to its element and scrolls it into view.
func (t *tab) resolve(ctx context.Context, ref string) (*graspedElement, error) {
	where, err := t.refs.find(ref)
	if err != nil {
		return nil, err
	}
	world, err := cdp.Call(ctx, t.wire, page.CreateIsolatedWorld,
		page.CreateIsolatedWorldParams{FrameID: where.frame, WorldName: worldName})
	if err != nil {
		return nil, staleIf(err, ref)
	}
	node, err := cdp.Call(ctx, t.wire, dom.ResolveNode,
		dom.ResolveNodeParams{BackendNodeID: where.node, ExecutionContextID: world.ExecutionContextID})
	if err != nil {
		return nil, staleIf(err, ref)
	}
	el := &graspedElement{tab: t, ref: ref, object: node.Object.ObjectID}
	return el, el.callFunction(ctx, "show", "")
}

// staleIf converts errors that Chromium returned to a stale ref. Other errors stay.
func staleIf(err error, ref string) error {
	var of *cdproto.Error
	if errors.As(err, &of) {
		return stale(ref)
	}
	return err
}

// callFunction calls a function of the script on the element.
func (e *graspedElement) callFunction(ctx context.Context, function, text string) error {
	args := make([]*runtime.CallArgument, 0, 2)
	for _, arg := range [...]string{function, text} {
		raw, err := jsonv2.Marshal(arg, chromedp.DefaultMarshalOptions)
		if err != nil {
			return err
		}
		args = append(args, &runtime.CallArgument{Value: raw})
	}
	yes := true
	res, err := cdp.Call(ctx, e.tab.wire, runtime.CallFunctionOn, runtime.CallFunctionOnParams{
		FunctionDeclaration: script, ObjectID: e.object, Arguments: args, ReturnByValue: &yes, UserGesture: &yes,
	})
	if err != nil {
		return staleIf(err, e.ref)
	}
	if res.ExceptionDetails != nil || res.Result == nil {
		return failure("the page prevented the action on " + e.ref)
	}
	if err := jsonv2.Unmarshal(res.Result.Value, e, chromedp.DefaultUnmarshalOptions); err != nil {
		return err
	}
	switch {
	case e.Gone:
		return stale(e.ref)
	case e.Failed != "":
		return failure(fmt.Sprintf("%s (%s) %s", e.ref, short(e.Tag, maxShown), e.Failed))
	}
	return nil
}

// center returns the center of the element in the window.
func (e *graspedElement) center(ctx context.Context) (x, y float64, err error) {
	res, err := cdp.Call(ctx, e.tab.wire, dom.GetContentQuads, dom.GetContentQuadsParams{ObjectID: e.object})
	var of *cdproto.Error
	if err != nil && !errors.As(err, &of) {
		return 0, 0, err
	}
	for _, q := range res.Quads {
		if len(q) == 8 && (q[0] != q[4] || q[1] != q[5]) {
			return (q[0] + q[2] + q[4] + q[6]) / 4, (q[1] + q[3] + q[5] + q[7]) / 4, nil
		}
	}
	return 0, 0, failure(fmt.Sprintf("%s (%s) is not visible", e.ref, short(e.Tag, maxShown)))
}

func (e *graspedElement) click(ctx context.Context) error {
	if e.Tag == "option" {
		return e.callFunction(ctx, "choose", "") // options of a closed list have no position in the window
	}
	if err := e.callFunction(ctx, "usable", ""); err != nil {
		return err
	}
	x, y, err := e.center(ctx)
	if err != nil {
		return err
	}
	if _, err := chromedp.MouseEvent(chromedp.MouseMoved, x, y)(ctx, e.tab.wire); err != nil {
		return err
	}
	_, err = chromedp.MouseClickXY(x, y)(ctx, e.tab.wire)
	return err
}

func (e *graspedElement) typeKeys(ctx context.Context, text string) error {
	if n := len([]rune(text)); n > maxTyped {
		return failure(fmt.Sprintf("type takes at most %[2]d characters, not %[1]d: use fill", n, maxTyped))
	}
	if err := e.callFunction(ctx, "focus", ""); err != nil {
		return err
	}
	_, err := chromedp.KeyEvent(strings.ReplaceAll(text, "\n", "\r"))(ctx, e.tab.wire)
	return err
}

func (e *graspedElement) hover(ctx context.Context) error {
	x, y, err := e.center(ctx)
	if err != nil {
		return err
	}
	_, err = cdp.Call(ctx, e.tab.wire, input.DispatchMouseEvent,
		input.DispatchMouseEventParams{Type: input.DispatchMouseEventTypeMouseMoved, X: x, Y: y})
	return err
}

func (e *graspedElement) drag(ctx context.Context, targetRef string) error {
	to, err := e.tab.resolve(ctx, targetRef)
	if err != nil {
		return err
	}
	// Scrolling to the target may have moved the element, so locate it afterwards.
	fromX, fromY, err := e.center(ctx)
	if err != nil {
		return err
	}
	toX, toY, err := to.center(ctx)
	if err != nil {
		return err
	}
	if fromX < 0 || fromY < 0 || fromX > windowWidth || fromY > windowHeight {
		return failure(fmt.Sprintf("%s and %s do not fit in the window together", e.ref, targetRef))
	}
	_, err = chromedp.DragAndDropXY(fromX, fromY, toX, toY)(ctx, e.tab.wire)
	return err
}

// refs are the elements of the last snapshot of a tab that a model can act on. Numbers are never reused, so that refs
// of earlier snapshots are recognised as stale.
type refs struct {
	first, next int // refs are numbered first+1 to next; next is the last one used
	of          []element
}

// element identifies an element and its frame.
type element struct {
	node  cdp.BackendNodeID
	frame cdp.FrameID
}

// expire makes all refs stale.
func (r *refs) expire() { r.first, r.of = r.next, nil }

// add adds an element and returns its ref.
func (r *refs) add(e element) string {
	r.of = append(r.of, e)
	r.next++
	return "e" + strconv.Itoa(r.next)
}

// find returns the element of a ref. It accepts refs in brackets.
func (r *refs) find(ref string) (element, error) {
	ref = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(ref), "["), "]")
	n, err := strconv.Atoi(strings.TrimPrefix(ref, "e"))
	switch {
	case err != nil || !strings.HasPrefix(ref, "e") || n < 1 || n > r.next:
		return element{}, failure(fmt.Sprintf("there is no element %q: take a new snapshot and use one of its "+
			"refs, such as e1", short(ref, maxShown)))
	case n <= r.first:
		return element{}, stale(ref)
	}
	return r.of[n-r.first-1], nil
}

func stale(ref string) error {
	return failure(fmt.Sprintf("the ref %s is stale: the page changed, or the ref is from an earlier snapshot; "+
		"take a new snapshot and use its refs", short(ref, maxShown)))
}

// activity tracks the loading frames and the requests in flight of a tab.
type activity struct {
	mu       sync.Mutex
	frames   map[cdp.FrameID]bool
	requests map[network.RequestID]asker
	changed  chan struct{} // has a value after a change
}

// asker is the origin of a request.
type asker struct {
	document cdp.LoaderID
	frame    cdp.FrameID
}

const maxActivity = 1000 // maximum of tracked frames, and of tracked requests

func newActivity() activity {
	return activity{frames: make(map[cdp.FrameID]bool), requests: make(map[network.RequestID]asker),
		changed: make(chan struct{}, 1)}
}

// receive processes an event.
func (a *activity) receive(event any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch e := event.(type) {
	case *page.EventFrameRequestedNavigation: // on a busy machine the navigation starts later
		here := e.Disposition == page.ClientNavigationDispositionCurrentTab
		if here && len(a.requests) < maxActivity {
			a.requests[navigationOf(e.FrameID)] = asker{frame: e.FrameID}
		}
	case *page.EventFrameStartedLoading:
		delete(a.requests, navigationOf(e.FrameID))
		if len(a.frames) < maxActivity {
			a.frames[e.FrameID] = true
		}
	case *page.EventFrameStoppedLoading:
		delete(a.frames, e.FrameID)
	case *page.EventFrameNavigated:
		delete(a.requests, navigationOf(e.Frame.ID))
		if e.Frame.ParentID == "" {
			a.forgetRequests(func(by asker) bool { return by.document != e.Frame.LoaderID })
		}
	case *page.EventNavigatedWithinDocument:
		delete(a.requests, navigationOf(e.FrameID))
	case *page.EventFrameDetached:
		delete(a.frames, e.FrameID)
		a.forgetRequests(func(by asker) bool { return by.frame == e.FrameID })
	case *network.EventRequestWillBeSent:
		if asksNetwork(e) && len(a.requests) < maxActivity {
			a.requests[e.RequestID] = asker{document: e.LoaderID, frame: e.FrameID}
		}
	case *network.EventLoadingFinished:
		delete(a.requests, e.RequestID)
	case *network.EventLoadingFailed:
		delete(a.requests, e.RequestID)
	default:
		return
	}
	a.wake()
}

const navigation = "navigation "

// navigationOf returns the id under which a requested navigation of a frame is tracked.
func navigationOf(frame cdp.FrameID) network.RequestID { return network.RequestID(navigation + frame) }

// forgetNavigations drops navigations that have not started. Downloads never start.
func (a *activity) forgetNavigations() {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.requests, func(id network.RequestID, _ asker) bool {
		return strings.HasPrefix(string(id), navigation)
	})
}

// asksNetwork reports whether settle waits for a request.
func asksNetwork(e *network.EventRequestWillBeSent) bool {
	endless := e.Type == network.ResourceTypeEventSource || e.Type == network.ResourceTypePing
	return !endless && strings.HasPrefix(e.Request.URL, "http")
}

// forgetRequests drops requests of documents that were left, and of frames that are gone or moved to another process:
// there are no more events for them.
func (a *activity) forgetRequests(of func(asker) bool) {
	maps.DeleteFunc(a.requests, func(_ network.RequestID, by asker) bool { return of(by) })
}

func (a *activity) wake() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

func (a *activity) busy() (loading, requesting bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.frames) > 0, len(a.requests) > 0
}

// forget drops all activity after the browser asked the page to stop, because some of its requests get no more events.
func (a *activity) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.frames)
	clear(a.requests)
}

// settle waits until the tab was quiet for a moment, at most for limit, and reports whether it is quiet. Requests of a
// loaded page delay it by at most askingTimeout, because some pages never stop.
func (t *tab) settle(ctx context.Context, limit time.Duration) bool {
	end := time.NewTimer(limit)
	defer end.Stop()
	idle := time.NewTimer(quiet)
	defer idle.Stop()
	var loaded time.Time
	for {
		loading, requesting := t.activity.busy()
		if loading {
			loaded = time.Time{}
		} else if loaded.IsZero() {
			loaded = time.Now()
		}
		switch {
		case loading:
			idle.Stop()
		case requesting:
			idle.Reset(time.Until(loaded.Add(askingTimeout)))
		default:
			idle.Reset(quiet)
		}
		select {
		case <-t.activity.changed:
		case <-t.crashed:
			return true
		case <-idle.C:
			t.activity.forgetNavigations()
			return true
		case <-end.C:
			return false
		case <-t.answered:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// load loads a URL in a tab. It waits until the page has settled, at most for loadTimeout.
func (t *tab) load(ctx context.Context, address string) error {
	t.fresh = false
	t.refs.expire()
	t.unreached.Store(false)
	t.login.Store(false)
	bounded, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	res, err := cdp.Call(bounded, t.wire, page.Navigate, page.NavigateParams{URL: address})
	switch {
	case err != nil && ctx.Err() == nil && errors.Is(bounded.Err(), context.DeadlineExceeded):
		_, _ = cdp.Call(ctx, t.wire, page.StopLoading, cdp.Empty{})
		t.activity.forget()
		return failure(fmt.Sprintf("the page did not answer within %s", loadTimeout))
	case err != nil:
		return err
	case res.IsDownload:
		return failure("the URL is a download; downloads are off")
	case strings.Contains(res.ErrorText, "ERR_INVALID_AUTH_CREDENTIALS"):
		return errLogin
	case res.ErrorText != "":
		return failure("the page could not be loaded: " + explain(res.ErrorText))
	}
	if !t.settle(bounded, loadTimeout) && ctx.Err() == nil {
		t.notes.add("the page is still loading")
	}
	switch {
	case t.unreached.Load():
		return failure("the page could not be loaded")
	case t.login.Load():
		return errLogin
	}
	return nil
}

// errLogin is the error for pages that need HTTP authentication.
const errLogin = failure("the page could not be loaded: the site requires HTTP authentication (a password dialog), " +
	"which is not supported")

// explain appends to an error of Chromium what it means here.
func explain(text string) string {
	switch {
	case strings.Contains(text, "ERR_TUNNEL_CONNECTION_FAILED"):
		return text + " (the gateway's proxy did not connect)"
	case strings.Contains(text, "ERR_ABORTED"):
		return text + " (the answer is not a page: a download, or empty)"
	case strings.Contains(text, "ERR_CERT"):
		return text + " (its certificate is not trusted)"
	default:
		return text
	}
}

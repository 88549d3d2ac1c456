package browser

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
)

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

// forget drops all activity after the page was told to stop, because some of its requests get no more events.
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
		return failure("this is a file to download, and downloads are off")
	case strings.Contains(res.ErrorText, "ERR_INVALID_AUTH_CREDENTIALS"):
		return errLogin
	case res.ErrorText != "":
		return failure("the page could not be loaded: " + explain(res.ErrorText))
	}
	if !t.settle(bounded, loadTimeout) && ctx.Err() == nil {
		t.notes.add("the page is still loading")
	}
	if t.unreached.Load() {
		return failure("the page could not be loaded")
	}
	return nil
}

// errLogin is the error for pages that need HTTP authentication.
const errLogin = failure("the page could not be loaded: the site asks for a user name and a password in a dialog, " +
	"which this browser does not have")

// explain appends to an error of Chromium what it means here.
func explain(text string) string {
	switch {
	case strings.Contains(text, "ERR_TUNNEL_CONNECTION_FAILED"):
		return text + " (the gateway's proxy did not connect)"
	case strings.Contains(text, "ERR_ABORTED"):
		return text + " (there was no page to show: a download, or an empty answer)"
	case strings.Contains(text, "ERR_CERT"):
		return text + " (its certificate is not to be trusted)"
	default:
		return text
	}
}

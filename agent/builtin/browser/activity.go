package browser

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
)

// activity is what a tab is busy with: loading frames, and requests under way.
type activity struct {
	mu       sync.Mutex
	frames   map[cdp.FrameID]bool
	requests map[network.RequestID]cdp.LoaderID // with the document that asked
	changed  chan struct{}                      // has a value after a change
}

const maxActivity = 1000 // frames and requests that are followed, each

func newActivity() activity {
	return activity{frames: make(map[cdp.FrameID]bool), requests: make(map[network.RequestID]cdp.LoaderID),
		changed: make(chan struct{}, 1)}
}

// hear takes in an event.
func (a *activity) hear(event any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch e := event.(type) {
	case *page.EventFrameStartedLoading:
		if len(a.frames) < maxActivity {
			a.frames[e.FrameID] = true
		}
	case *page.EventFrameStoppedLoading:
		delete(a.frames, e.FrameID)
	case *page.EventFrameNavigated:
		if e.Frame.ParentID == "" { // nothing more is heard of what the last document asked for
			maps.DeleteFunc(a.requests, func(_ network.RequestID, by cdp.LoaderID) bool { return by != e.Frame.LoaderID })
		}
	case *page.EventFrameDetached:
		delete(a.frames, e.FrameID)
	case *network.EventRequestWillBeSent:
		endless := e.Type == network.ResourceTypeEventSource || e.Type == network.ResourceTypePing
		if !endless && len(a.requests) < maxActivity {
			a.requests[e.RequestID] = e.LoaderID
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

func (a *activity) wake() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

func (a *activity) busy() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.frames)+len(a.requests) > 0
}

// forget is for a page that was told to stop: nothing more is heard of some of its requests.
func (a *activity) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.frames)
	clear(a.requests)
}

// settle waits until the tab was quiet for a moment, or the time is up, and reports whether it is quiet.
func (t *tab) settle(ctx context.Context, limit time.Duration) bool {
	end := time.NewTimer(limit)
	defer end.Stop()
	calm := time.NewTimer(quiet)
	defer calm.Stop()
	for {
		var still <-chan time.Time
		if !t.activity.busy() {
			calm.Reset(quiet)
			still = calm.C
		}
		select {
		case <-t.activity.changed:
			if t.crashed.Load() {
				return true
			}
		case <-still:
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

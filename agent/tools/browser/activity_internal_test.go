package browser

import (
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
)

// A page that has asked for the next one is waited for, however late that begins.
func TestNavigationsAreWaitedFor(t *testing.T) {
	const frame = cdp.FrameID("f")
	asks := &page.EventFrameRequestedNavigation{FrameID: frame, Disposition: page.ClientNavigationDispositionCurrentTab}
	for name, end := range map[string]any{
		"begins":                &page.EventFrameStartedLoading{FrameID: frame},
		"is shown":              &page.EventFrameNavigated{Frame: &cdp.Frame{ID: frame, ParentID: "top"}},
		"stays on the page":     &page.EventNavigatedWithinDocument{FrameID: frame},
		"the frame is detached": &page.EventFrameDetached{FrameID: frame},
	} {
		a := newActivity()
		a.receive(asks)
		if _, asking := a.busy(); !asking {
			t.Errorf("%s: it is not waited for", name)
		}
		a.receive(end)
		if _, asking := a.busy(); asking {
			t.Errorf("%s: it is still waited for", name)
		}
	}
	a := newActivity()
	a.receive(&page.EventFrameRequestedNavigation{FrameID: frame, Disposition: page.ClientNavigationDispositionNewTab})
	if _, asking := a.busy(); asking {
		t.Error("what opens in another tab is waited for")
	}
	a.receive(asks)
	a.forgetNavigations()
	if _, asking := a.busy(); asking {
		t.Error("what never begins is waited for again")
	}
}

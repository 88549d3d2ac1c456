package api

import (
	"context"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/registry"
)

const (
	feedPage  = 100 // entries written at once
	feedWait  = 10 * time.Second
	feedPause = time.Second // before the store is asked again after it failed
)

// activityTypes are the kinds of entries a feed has.
func activityTypes() []string {
	return []string{
		registry.ActivityConnected, registry.ActivityUpdated, registry.ActivityDisconnected, registry.ActivityTools, registry.ActivityCall,
		registry.ActivityCallProgress, registry.ActivityTurnStarted, registry.ActivityTurnFinished, registry.ActivityPodDied,
	}
}

// activity is an entry of the feed as clients see it.
type activity struct {
	Type      string      `json:"type"`
	At        string      `json:"at"`
	Pod       string      `json:"pod"`
	SessionID string      `json:"session_id,omitempty"`
	DeviceID  string      `json:"device_id,omitempty"`
	Tools     *[]string   `json:"tools,omitempty"` // with session.tools, where none is []
	Reason    string      `json:"reason,omitempty"`
	Call      *callRecord `json:"call,omitempty"`

	Turn *registry.TurnNote `json:"turn,omitempty"`
}

func activityOf(a registry.Activity) activity {
	shown := activity{
		Type: a.Type, At: shownTime(a.At), Pod: a.Pod, SessionID: a.SessionID, DeviceID: a.DeviceID, Reason: a.Reason,
		Turn: a.Turn,
	}
	if a.Type == registry.ActivityTools {
		tools := append([]string{}, a.Tools...)
		shown.Tools = &tools
	}
	if a.Call != nil {
		call := summaryOf(*a.Call)
		shown.Call = &call
	}
	return shown
}

// events streams what happens in the caller's tenant, from now on or from where the client was.
func (h *handler) events(c *gin.Context, q params) {
	tenant := caller(c).Tenant
	types, err := q.someOf("type", activityTypes()...)
	if err != nil {
		h.fail(c, err)
		return
	}
	after, err := lastEventID(c, q)
	if err != nil {
		h.fail(c, err)
		return
	}
	release, err := h.reserveStream()
	if err != nil {
		h.fail(c, err)
		return
	}
	defer release()
	if after == "" {
		if after, err = h.feedEnd(c.Request.Context(), tenant); err != nil {
			h.fail(c, err)
			return
		}
	}
	h.serveStream(c, func(ctx context.Context, s *stream) error {
		return h.followFeed(ctx, s, tenant, after, func(a registry.Activity) bool {
			return len(types) == 0 || slices.Contains(types, a.Type)
		})
	})
}

func (h *handler) feedEnd(ctx context.Context, tenant string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return h.Calls.FeedEnd(ctx, tenant)
}

// followFeed writes what stands in the feed behind the entry with id after, and what is added, until ctx ends.
func (h *handler) followFeed(
	ctx context.Context, s *stream, tenant, after string, wanted func(registry.Activity) bool,
) error {
	for {
		entries, err := h.Calls.Feed(ctx, tenant, after, feedPage, max(0, min(feedWait, s.silence())))
		if ctx.Err() != nil {
			return nil
		}
		for _, a := range entries {
			if after = a.ID; wanted(a) {
				if err := s.put(a.ID, a.Type, activityOf(a)); err != nil {
					return err
				}
			}
		}
		if err := s.flush(); err != nil {
			return err
		}
		if err == nil {
			continue
		}
		// The store will be back, and until then the client is kept: a browser that is refused once stays away for good.
		h.Log.Debug("feed not read", "error", err)
		if !pause(ctx, feedPause) {
			return nil
		}
	}
}

package api

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/api/internal/ssewriter"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

const (
	feedPage  = 100       // entries written at once to a client that catches up
	feedWrite = 256 << 10 // bytes written at once, about, to one that has
	catchUps  = 4         // clients that catch up at a time
	feedWait  = 10 * time.Second
	feedPause = time.Second // before the store is asked again after it failed
)

// activityTypes are the kinds of entries a feed has.
func activityTypes() []string {
	return []string{
		registry.ActivityConnected, registry.ActivityUpdated, registry.ActivityDisconnected, registry.ActivityTools,
		registry.ActivityCall, registry.ActivityCallProgress, registry.ActivityTurnStarted,
		registry.ActivityTurnFinished, registry.ActivityPodDied, registry.ActivityApprovalRequested,
		registry.ActivityApprovalDecided,
	}
}

// activity is an entry of the feed as clients see it.
type activity struct {
	Type      string      `json:"type"`
	At        string      `json:"at"`
	Pod       string      `json:"pod"`
	SessionID string      `json:"session_id,omitempty"`
	DeviceID  string      `json:"device_id,omitempty"`
	UserID    string      `json:"user_id,omitempty"` // of the session
	Tools     *[]string   `json:"tools,omitempty"`   // with session.tools, where none is []
	Reason    string      `json:"reason,omitempty"`
	Call      *callRecord `json:"call,omitempty"`

	Turn *registry.TurnNote `json:"turn,omitempty"`

	Approval *approvalNote `json:"approval,omitempty"`
}

// approvalNote is what the feed says of an approval. GET /api/approvals/{id} has the rest.
type approvalNote struct {
	ID        string                 `json:"id"`
	CallID    string                 `json:"call_id"`
	Tool      string                 `json:"tool"`
	UserID    string                 `json:"user_id,omitempty"`
	State     registry.ApprovalState `json:"state"`
	DecidedBy string                 `json:"decided_by,omitempty"`
	ExpiresAt string                 `json:"expires_at"`
}

func activityOf(a registry.Activity) activity {
	shown := activity{
		Type: a.Type, At: shownTime(a.At), Pod: a.Pod, SessionID: a.SessionID, DeviceID: a.DeviceID, UserID: a.UserID,
		Reason: a.Reason, Turn: a.Turn,
	}
	if a.Type == registry.ActivityTools {
		tools := append([]string{}, a.Tools...)
		shown.Tools = &tools
	}
	if n := a.Approval; n != nil {
		shown.Approval = &approvalNote{
			ID: n.ID, CallID: n.CallID, Tool: n.Tool, UserID: n.Owner, State: n.State, DecidedBy: n.DecidedBy,
			ExpiresAt: shownTime(n.ExpiresAt),
		}
	}
	if a.Call != nil {
		call := summaryOf(*a.Call)
		shown.Call = &call
	}
	return shown
}

// events streams the activity of the caller's tenant, as far as the caller may see it, from now on. A client that comes
// back continues where it was.
func (h *handler) events(c *gin.Context, q params) error {
	tenant, viewer := caller(c).Tenant, caller(c).Viewer()
	types, err := q.someOf("type", activityTypes()...)
	if err != nil {
		return err
	}
	after, err := lastEventID(c, q)
	if err != nil {
		return err
	}
	release, err := h.reserveStream(h.owner(c))
	if err != nil {
		return err
	}
	defer release()
	if after == "" {
		if after, err = h.feedEnd(c.Request.Context(), tenant); err != nil {
			return err
		}
	}
	h.serveStream(c, func(ctx context.Context, s *ssewriter.Stream) error {
		reader, leave := h.hub.follow(tenant)
		defer leave()
		f := &feedFollower{
			handler: h, by: h.owner(c), reader: reader, viewer: viewer, after: after, out: s, types: types,
		}
		return f.writeAll(ctx)
	})
	return nil
}

func (h *handler) feedEnd(ctx context.Context, tenant string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return h.Calls.FeedEnd(ctx, tenant)
}

// feedFollower writes a feed to one stream.
type feedFollower struct {
	*handler
	by     share.Owner
	reader *feedReader
	viewer string // the only user whose entries are written; empty: all
	after  string // the last entry that was written or skipped
	out    *ssewriter.Stream
	types  []string // the wanted ones; empty: all
}

var errTooSlow = errors.New("the client is too slow: entries it has not received are not kept any more")

// writeAll writes the entries after f.after, and those that are added, until ctx ends.
func (f *feedFollower) writeAll(ctx context.Context) error {
	for ctx.Err() == nil {
		at, ok, grown := f.reader.place(f.after)
		var err error
		switch {
		case ok:
			return f.follow(ctx, at)
		case grown != nil:
			await(ctx, grown, max(f.out.UntilHeartbeat(), time.Millisecond))
			err = f.out.Flush()
		default:
			err = f.catchUp(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// follow writes the reader's entries from a place on.
func (f *feedFollower) follow(ctx context.Context, at int64) error {
	for ctx.Err() == nil {
		entries, ok, grown := f.reader.from(at, feedWrite)
		if !ok {
			return errTooSlow // the client can come back with the id of the last entry
		}
		for _, e := range entries {
			if f.wants(e.kind, e.owner) {
				f.out.PutEncoded(e.text)
			}
		}
		at += int64(len(entries))
		if err := f.out.Flush(); err != nil {
			return err
		}
		if len(entries) == 0 {
			await(ctx, grown, max(f.out.UntilHeartbeat(), time.Millisecond))
		}
	}
	return nil
}

// catchUp writes a page of entries for a client that was away for longer than the reader keeps them. Few clients may
// catch up at a time.
func (f *feedFollower) catchUp(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, max(f.out.UntilHeartbeat(), time.Millisecond))
	defer cancel()
	release, err := f.catchingUp.wait(limited, f.by)
	if err != nil {
		return f.out.Flush()
	}
	defer release()
	base := f.reader.start()
	entries, err := f.Calls.Feed(ctx, f.by.Tenant, f.after, feedPage, 0)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil: // the client stays connected: a browser that is refused once never comes back
		f.Log.Debug("feed not read", "error", err)
		pause(ctx, feedPause)
	case len(entries) == 0: // the entries have been trimmed
		f.after = base
	}
	for _, a := range entries {
		if f.after = a.ID; f.wants(a.Type, a.Owner()) {
			if err := f.out.Put(a.ID, a.Type, activityOf(a)); err != nil {
				return err
			}
		}
	}
	return f.out.Flush()
}

func (f *feedFollower) wants(kind string, owner registry.ActivityOwner) bool {
	return (len(f.types) == 0 || slices.Contains(f.types, kind)) && owner.SeenBy(f.viewer)
}

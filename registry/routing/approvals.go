package routing

import (
	"context"
	"log/slog"

	"github.com/farhand/farhand/registry"
)

// Approvals shows approvals on the devices that they concern, whatever pod has their sockets. It is safe for concurrent
// use. It is best effort: if a message is lost, the device shows nothing, and people decide elsewhere.
type Approvals struct {
	store approvalStore
	hub   *Hub
	bus   registry.Bus
	tasks *tasks
	log   *slog.Logger
}

// approvalStore is the part of a store that Approvals needs.
type approvalStore interface {
	registry.ApprovalStore

	Entry(ctx context.Context, key registry.Key) (registry.Entry, error)
}

// approvalConn is an optional interface of a Conn.
type approvalConn interface {
	// ShowApproval shows the device a pending approval, or that the approval is final, if the device supports it. It
	// must not block.
	ShowApproval(a registry.Approval)
}

func newApprovals(cfg PodConfig, hub *Hub, t *tasks) *Approvals {
	return &Approvals{store: cfg.Store, hub: hub, bus: cfg.Bus, tasks: t, log: cfg.Log}
}

// Show shows a pending or final approval on the device that its call goes to. It does not block.
func (s *Approvals) Show(a registry.Approval) {
	key := registry.Key{Tenant: a.Tenant, Session: a.SessionID}
	switch {
	case a.SessionID == "":
	case s.hub.Get(key) != nil:
		s.showHere(key, a)
	default:
		s.tasks.start(key, func(ctx context.Context) {
			entry, err := s.store.Entry(ctx, key) // the device may have moved since the call was made
			if err == nil {
				err = s.bus.Send(ctx, entry.Session.Pod, registry.Envelope{
					V: registry.EnvelopeVersion, Kind: registry.EnvelopeApproval, Tenant: a.Tenant,
					Session: a.SessionID, CallID: a.ID,
				})
			}
			if err != nil {
				s.log.Debug("approval not shown on its device", "approval", a.ID, "error", err)
			}
		})
	}
}

func (s *Approvals) showHere(key registry.Key, a registry.Approval) {
	if l := s.hub.Get(key); l != nil {
		if c, ok := l.conn.(approvalConn); ok {
			c.ShowApproval(a)
		}
	}
}

// handleApproval reads an approval that another pod wants shown, because messages carry only ids.
func (s *Approvals) handleApproval(e registry.Envelope) {
	if s.hub.Get(e.Key()) == nil {
		return
	}
	s.tasks.start(e.Key(), func(ctx context.Context) {
		a, err := s.store.Approval(ctx, e.Tenant, e.CallID)
		if err != nil {
			s.log.Debug("approval not read", "approval", e.CallID, "error", err)
			return
		}
		if a.SessionID == e.Session {
			s.showHere(e.Key(), a)
		}
	})
}

package routing

import (
	"context"

	"github.com/farhand/farhand/registry"
)

// Approvals shows approvals on the devices that they concern, whatever pod has their sockets. It is safe for concurrent
// use. It is best effort: if a message is lost, the device shows nothing, and people decide elsewhere.
type Approvals struct {
	core
	hub *Hub
}

// approvalConn is an optional interface of a Conn.
type approvalConn interface {
	// ShowApproval shows the device a pending approval, or that the approval is final, if the device supports it. It
	// must not block.
	ShowApproval(a registry.Approval)
}

// Show shows a pending or final approval on the device that its call goes to. It does not block.
func (s *Approvals) Show(a registry.Approval) {
	key := registry.Key{Tenant: a.Tenant, Session: a.SessionID}
	if a.SessionID == "" || s.showHere(key, a) {
		return
	}
	s.tasks.start(ofSession(key), func(ctx context.Context) {
		entry, err := s.store.Entry(ctx, key) // the device may have moved since the call was made
		if err != nil {
			s.log.Debug("approval not shown on its device", "approval", a.ID, "error", err)
			return
		}
		s.trySend(ctx, entry.Session.Pod, registry.Envelope{
			Kind: registry.EnvelopeApproval, Tenant: a.Tenant, Session: a.SessionID, CallID: a.ID,
		})
	})
}

// showHere shows an approval on its device, if it supports that. It reports whether the session is on this pod.
func (s *Approvals) showHere(key registry.Key, a registry.Approval) bool {
	l := s.hub.Get(key)
	if l == nil {
		return false
	}
	if c, ok := l.conn.(approvalConn); ok {
		c.ShowApproval(a)
	}
	return true
}

// handleApproval reads an approval that another pod wants shown, because messages carry only ids.
func (s *Approvals) handleApproval(e registry.Envelope) {
	if s.hub.Get(e.Key()) == nil {
		return
	}
	s.tasks.start(s.hub.payer(e.Key()), func(ctx context.Context) {
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

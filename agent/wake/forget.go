package wake

import (
	"context"
	"errors"
	"time"

	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/registry"
)

const (
	maxRevoked = 10_000          // revocations to follow; beyond it, the oldest are dropped
	forgetWait = 5 * time.Second // for one of them

	// revocationDelay is the time after a revocation within which a registration may still come from the revoked device.
	revocationDelay = 2 * time.Second
)

// CredentialsChanged forgets the registrations of revoked devices and users, in the background. Every pod does it.
func (s *Service) CredentialsChanged(changes []registry.CredentialChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	begin := len(s.revoked) == 0
	for _, c := range changes {
		if c.Revoked && (c.Kind == registry.ChangeUser || deviceOf(c) != "") {
			s.revoked = append(s.revoked, c)
		}
	}
	if n := len(s.revoked) - maxRevoked; n > 0 {
		s.revoked = s.revoked[n:]
		s.cfg.Log.Warn("registrations of revoked devices may remain", "revocations", n)
	}
	if begin && len(s.revoked) > 0 {
		s.work.Go(s.followRevocations)
	}
}

// deviceOf returns the device that a change is about, empty if none.
func deviceOf(c registry.CredentialChange) string {
	if c.Kind == registry.ChangeDevice {
		return c.ID
	}
	return c.Device
}

// followRevocations forgets what CredentialsChanged has noted, until nothing is left.
func (s *Service) followRevocations() {
	for {
		s.mu.Lock()
		if len(s.revoked) == 0 || s.closed {
			s.mu.Unlock()
			return
		}
		c := s.revoked[0]
		s.mu.Unlock()
		if err := s.follow(c); err != nil {
			s.cfg.Log.Warn("registration of a revoked device not removed; the pod retries", "error", err)
			if pause.For(s.ctx, time.Second) != nil {
				return
			}
			continue
		}
		s.mu.Lock()
		if len(s.revoked) > 0 {
			s.revoked = s.revoked[1:]
		}
		s.mu.Unlock()
	}
}

func (s *Service) follow(c registry.CredentialChange) error {
	ctx, cancel := context.WithTimeout(s.ctx, forgetWait)
	defer cancel()
	if c.Kind == registry.ChangeUser {
		_, err := s.cfg.Store.EraseOf(ctx, c.Tenant, c.ID, registry.PersonalWakes)
		return err
	}
	r, err := s.cfg.Store.WakeOf(ctx, c.Tenant, deviceOf(c))
	if err == nil && !r.SetAt.After(c.At.Add(revocationDelay)) {
		_, err = s.cfg.Store.DropWake(ctx, c.Tenant, r.DeviceID)
	}
	if errors.Is(err, registry.CodeNotFound) {
		return nil
	}
	return err
}

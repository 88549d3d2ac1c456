package wake

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/registry"
)

// Offer is what the gateway tells devices about being woken.
type Offer struct {
	Kinds          []registry.WakeKind `json:"kinds"`
	VAPIDPublicKey string              `json:"vapid_public_key,omitempty"`
}

// Offer returns the kinds that are set up.
func (s *Service) Offer() Offer {
	o := Offer{Kinds: []registry.WakeKind{}, VAPIDPublicKey: s.vapid}
	for _, kind := range registry.WakeKinds() {
		if s.pushers[kind] != nil {
			o.Kinds = append(o.Kinds, kind)
		}
	}
	return o
}

// Register stores how a device is woken, and returns it with its defaults. The caller has checked that the user may do
// so. It fails with CodeInvalidRequest if the registration is malformed, of a kind that is not set up, or names a URL
// that is not allowed, and as registry.WakeStore.SetWake does.
func (s *Service) Register(
	ctx context.Context, tenant, user, deviceID string, w registry.Wake,
) (registry.Wake, error) {
	w, err := w.Checked()
	if err != nil {
		return w, err
	}
	if s.pushers[w.Kind] == nil {
		return w, registry.Errorf(registry.CodeInvalidRequest,
			"wake.kind: %s is not set up on this gateway. It offers: %v.", w.Kind, s.Offer().Kinds)
	}
	if target := w.Target(); target != "" {
		if err := s.checkTarget(target); err != nil {
			return w, registry.Errorf(registry.CodeInvalidRequest, "wake: the URL is not allowed: %v.", err)
		}
	}
	return w, s.cfg.Store.SetWake(ctx, registry.WakeRecord{Tenant: tenant, User: user, DeviceID: deviceID, Wake: w})
}

func (s *Service) checkTarget(target string) error {
	if err := s.guard.CheckURL(target); err != nil {
		return err
	}
	if !s.cfg.AllowPrivate && !strings.HasPrefix(strings.ToLower(target), "https:") {
		return errors.New("only https URLs are allowed")
	}
	return nil
}

// Registered returns what a user registered for a device, or registry.ErrNoWake.
func (s *Service) Registered(ctx context.Context, ref registry.WakeRef) (registry.WakeRecord, error) {
	return s.cfg.Store.WakeOf(ctx, ref)
}

// OfDevice returns what the users of a tenant registered for a device id, as registry.WakeStore.WakesOf.
func (s *Service) OfDevice(ctx context.Context, tenant, deviceID string) ([]registry.WakeRecord, error) {
	return s.cfg.Store.WakesOf(ctx, tenant, deviceID)
}

// ForgetOwn removes what a user registered for a device. If there is nothing, it does nothing.
func (s *Service) ForgetOwn(ctx context.Context, tenant, user, deviceID string) error {
	_, err := s.cfg.Store.DropWake(ctx, registry.WakeRef{Tenant: tenant, User: user, DeviceID: deviceID})
	return err
}

// Forget removes the registration of a device. It fails with registry.ErrNoWake if there is none.
func (s *Service) Forget(ctx context.Context, ref registry.WakeRef) error {
	dropped, err := s.cfg.Store.DropWake(ctx, ref)
	if err == nil && !dropped {
		err = registry.ErrNoWake
	}
	return err
}

const (
	maxRevoked = 10_000          // revocations to follow; beyond it, the oldest are dropped
	forgetWait = 5 * time.Second // for one of them

	// revocationDelay is the time after a revocation within which a registration may still come from the revoked
	// device.
	revocationDelay = 2 * time.Second
)

// CredentialsChanged forgets the registrations of revoked devices and users, in the background. Every pod does it.
func (s *Service) CredentialsChanged(changes []registry.CredentialChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	for _, c := range changes {
		if c.Revoked && (c.Kind == registry.ChangeUser || deviceOf(c) != "") {
			s.revoked = append(s.revoked, c)
		}
	}
	if n := len(s.revoked) - maxRevoked; n > 0 {
		s.revoked = s.revoked[n:]
		s.cfg.Log.Warn("registrations of revoked devices may remain", "revocations", n)
	}
	if len(s.revoked) > 0 && !s.following {
		s.following = true
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
			s.following = false
			s.mu.Unlock()
			return
		}
		c := s.revoked[0]
		s.revoked = s.revoked[1:] // more changes may drop the oldest meanwhile
		s.mu.Unlock()
		err := s.follow(c)
		if err == nil {
			continue
		}
		s.cfg.Log.Warn("registration of a revoked device not removed; the pod retries", "error", err)
		s.mu.Lock()
		s.revoked = slices.Insert(s.revoked, 0, c)
		s.mu.Unlock()
		if pause.For(s.ctx, time.Second) != nil {
			return
		}
	}
}

func (s *Service) follow(c registry.CredentialChange) error {
	ctx, cancel := context.WithTimeout(s.ctx, forgetWait)
	defer cancel()
	if c.Kind == registry.ChangeUser {
		_, err := s.cfg.Store.EraseOf(ctx, c.Tenant, c.ID, registry.PersonalWakes)
		return err
	}
	if c.User != "" {
		return s.forgetRevoked(ctx, c, registry.WakeRef{Tenant: c.Tenant, User: c.User, DeviceID: deviceOf(c)})
	}
	all, err := s.cfg.Store.WakesOf(ctx, c.Tenant, deviceOf(c)) // the change does not say whose device it was
	for _, r := range all {
		if err == nil {
			err = s.forgetRevoked(ctx, c, r.Ref())
		}
	}
	return err
}

// forgetRevoked forgets a registration, unless it was made after the revocation.
func (s *Service) forgetRevoked(ctx context.Context, c registry.CredentialChange, ref registry.WakeRef) error {
	r, err := s.cfg.Store.WakeOf(ctx, ref)
	if err == nil && !r.SetAt.After(c.At.Add(revocationDelay)) {
		_, err = s.cfg.Store.DropWake(ctx, ref)
	}
	if errors.Is(err, registry.ErrNoWake) {
		return nil
	}
	return err
}

// sleeper is a device to wake.
type sleeper struct {
	registry.WakeRef
	bound bool // its credential names it; the user is not known, and may not be the only one who registered the id
}

func sleeperOf(tenant, key string) sleeper {
	ref, bound := registry.WakeRefOf(tenant, key)
	return sleeper{ref, bound}
}

// record returns how a device is woken, or registry.ErrNoWake. If its credential names it, its user is that of the
// remembered device: no call waits for one that is not remembered.
func (s *Service) record(ctx context.Context, of sleeper) (registry.WakeRecord, error) {
	if of.bound {
		target := registry.Target{DeviceID: of.DeviceID, Bound: true}
		d, found, err := registry.FirstKnown(ctx, s.cfg.Store, registry.KnownQuery{Tenant: of.Tenant, Target: target})
		if err != nil || !found {
			return registry.WakeRecord{}, cmp.Or(err, error(registry.ErrNoWake))
		}
		of.User = d.Session.UserID
	}
	return s.cfg.Store.WakeOf(ctx, of.WakeRef)
}

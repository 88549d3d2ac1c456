package wake

import (
	"context"
	"errors"
	"strings"

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

// Registered returns the registration of a device, or registry.ErrNoWake.
func (s *Service) Registered(ctx context.Context, tenant, deviceID string) (registry.WakeRecord, error) {
	return s.cfg.Store.WakeOf(ctx, tenant, deviceID)
}

// ForgetOwn removes what a user registered for a device. If there is nothing, it does nothing.
func (s *Service) ForgetOwn(ctx context.Context, tenant, user, deviceID string) error {
	r, err := s.cfg.Store.WakeOf(ctx, tenant, deviceID)
	if err == nil && r.User != user {
		return registry.ErrForeignWake
	}
	if err == nil {
		_, err = s.cfg.Store.DropWake(ctx, tenant, deviceID)
	}
	if errors.Is(err, registry.CodeNotFound) {
		return nil
	}
	return err
}

// Forget removes the registration of a device. It fails with registry.ErrNoWake if there is none.
func (s *Service) Forget(ctx context.Context, tenant, deviceID string) error {
	dropped, err := s.cfg.Store.DropWake(ctx, tenant, deviceID)
	if err == nil && !dropped {
		err = registry.ErrNoWake
	}
	return err
}

package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/registry"
)

// Wakes keeps how devices are woken while they sleep. *wake.Service implements it.
type Wakes interface {
	Register(ctx context.Context, tenant, user, deviceID string, w registry.Wake) (registry.Wake, error)
	Registered(ctx context.Context, ref registry.WakeRef) (registry.WakeRecord, error)
	OfDevice(ctx context.Context, tenant, deviceID string) ([]registry.WakeRecord, error)
	Forget(ctx context.Context, ref registry.WakeRef) error
}

func (h *handler) wakeRoutes() []route {
	const path = "/api/devices/:id/wake"
	return []route{
		{http.MethodGet, path, callers, nil, h.getWake},
		{http.MethodPut, path, callers, nil, h.audited(registry.AuditDeviceWake, h.putWake)},
		{http.MethodDelete, path, callers, nil, h.audited(registry.AuditDeviceWake, h.deleteWake)},
	}
}

// Limits of changes of wakes, on this pod. They are apart from deviceChanges, so that no user keeps the approvers of
// the tenant from their devices. A tenant's limit is ten times that of an identity.
var (
	wakeChanges = auth.Limit{Rate: 0.5, Burst: 100} // of an identity
	tenantWakes = auth.Limit{Rate: 5, Burst: 1000}  // of a tenant
)

// mayChangeWake counts a change of a wake, or fails if the identity or its tenant made too many. A change that the
// tenant's limit refuses does not count for the identity.
func (h *handler) mayChangeWake(c *gin.Context) error {
	by := h.owner(c)
	if !h.wakeChanges.Take(by, 1) {
		e := registry.Errorf(registry.CodeRateLimited,
			"Nothing was changed: you made too many changes of wakes in a short time. Retry later.")
		e.RetryAfter = time.Duration(float64(time.Second) / wakeChanges.Rate)
		return e
	}
	err := mayChange(c, h.tenantWakes, tenantWakes, "changes of wakes")
	if err != nil {
		h.wakeChanges.Refund(by, 1)
	}
	return err
}

// deviceID returns the device_id of the device in the path, which may also be named by the id of its credential.
func (h *handler) deviceID(ctx context.Context, c *gin.Context) (string, error) {
	paired, err := h.Credentials.Credential(ctx, caller(c).Tenant, c.Param("id"))
	switch {
	case err == nil && paired.Kind == registry.CredentialDevice:
		return paired.DeviceID, nil
	case err != nil && !errors.Is(err, registry.CodeNotFound):
		return "", err
	}
	return c.Param("id"), nil
}

// wakeOf returns the registration of the device in the path: that of the user whom a registration would be for. It
// fails with registry.ErrNoWake if that user has none.
func (h *handler) wakeOf(ctx context.Context, c *gin.Context) (registry.WakeRecord, error) {
	id, err := h.deviceID(ctx, c)
	if err != nil {
		return registry.WakeRecord{}, err
	}
	user, found, err := h.deviceUser(ctx, caller(c), id)
	if err != nil || !found {
		return registry.WakeRecord{}, cmp.Or(err, error(registry.ErrNoWake))
	}
	return h.Wakes.Registered(ctx, registry.WakeRef{Tenant: caller(c).Tenant, User: user, DeviceID: id})
}

func (h *handler) getWake(c *gin.Context, _ *params) error {
	r, err := h.wakeOf(storeContext(c), c)
	if err != nil {
		return err
	}
	return h.writeUncached(c, http.StatusOK, shownWake(r))
}

// shownWake returns a registration without its secrets.
func shownWake(r registry.WakeRecord) wire.DeviceWake {
	shown := wire.DeviceWake{
		DeviceID: r.DeviceID, Kind: string(r.Wake.Kind), Topic: r.Wake.Topic, MinIntervalMS: r.Wake.MinIntervalMS,
		RegisteredAt: shownTime(r.SetAt), LastPush: optionalTime(r.Plan.Last), NextPush: optionalTime(r.Plan.Next),
		Failures: r.Plan.Failures, Error: r.Plan.Error,
	}
	if u, err := url.Parse(r.Wake.Target()); err == nil {
		shown.Host = u.Host
	}
	if q := r.Wake.Quiet; q != nil {
		shown.Quiet = (*wire.QuietHours)(q)
	}
	return shown
}

func (h *handler) putWake(c *gin.Context, _ *params) error {
	body, err := h.readBody(c)
	if err != nil {
		return err
	}
	r, err := readStrict[wire.Wake](orNothing(body), map[string]string{
		"min_interval_ms": "a number of milliseconds", "keys": "an object with p256dh and auth",
		"quiet": "an object with from, to and zone",
	})
	if err != nil {
		return err
	}
	if err := h.mayChangeWake(c); err != nil {
		return err
	}
	ctx := storeContext(c)
	id, err := h.deviceID(ctx, c)
	if err != nil {
		return err
	}
	user, found, err := h.deviceUser(ctx, caller(c), id)
	switch {
	case err != nil:
		return err
	case !found:
		return registry.Errorf(registry.CodeNotFound,
			"No device with this device_id is connected, paired or remembered. Connect the device first.")
	}
	if err := mayRegister(caller(c), user); err != nil {
		return err
	}
	noteAudit(c, auditDetail{device: id, reason: "kind: " + r.said.Kind})
	if _, err := h.Wakes.Register(ctx, caller(c).Tenant, user, id, wakeFrom(r.said)); err != nil {
		return err
	}
	set, err := h.Wakes.Registered(ctx, registry.WakeRef{Tenant: caller(c).Tenant, User: user, DeviceID: id})
	if err != nil {
		return err
	}
	return h.writeUncached(c, http.StatusOK, shownWake(set))
}

// mayRegister returns an error if a caller may not change the registration of a user's device. Each user sees a device
// without a user, but only admins say how it is woken.
func mayRegister(who auth.Identity, user string) error {
	if viewer := who.Viewer(); viewer != "" && viewer != user {
		return registry.Errorf(registry.CodeForbidden, "Only an admin may change how a device without a user is woken.")
	}
	return nil
}

func wakeFrom(w wire.Wake) registry.Wake {
	return registry.Wake{
		Kind: registry.WakeKind(w.Kind), URL: w.URL, Endpoint: w.Endpoint, Keys: (*registry.WakeKeys)(w.Keys),
		Token: w.Token, Topic: w.Topic, MinIntervalMS: w.MinIntervalMS, Quiet: (*registry.QuietHours)(w.Quiet),
	}
}

// devicesOf returns targets for a device id that a caller may use, the surest first: the device whose credential names
// it, then the caller's own, then any that the caller may see. Other users may have chosen the id.
func devicesOf(who auth.Identity, id string) []registry.Target {
	any := registry.Target{DeviceID: id, Viewer: who.Viewer()}
	bound := any
	bound.Bound = true
	if who.User == "" {
		return []registry.Target{bound, any}
	}
	own := any
	own.UserID = who.User
	return []registry.Target{bound, own, any}
}

// deviceUser returns the user of a device that the caller may see. For each target of devicesOf in turn, it looks at
// connected devices, then at paired and remembered ones, and last at registrations: any user can register any id.
// found is false if there is none.
func (h *handler) deviceUser(ctx context.Context, who auth.Identity, id string) (user string, found bool, err error) {
	for _, target := range devicesOf(who, id) {
		for _, search := range []func(context.Context, string, registry.Target) (string, bool, error){
			h.connectedUser, h.pairedUser, h.knownUser, h.registeredUser,
		} {
			if user, found, err = search(ctx, who.Tenant, target); err != nil || found {
				return user, found, err
			}
		}
	}
	return "", false, nil
}

// Bounds of a search for a connected device. A crowd of other users who chose the id makes it no longer.
const (
	maxUserPages = 16
	userPage     = 200 // sessions of a page
)

// connectedUser returns the user of a connected session that matches a target. A page may be empty although there is
// one.
func (h *handler) connectedUser(ctx context.Context, tenant string, target registry.Target) (string, bool, error) {
	q := registry.Query{Tenant: tenant, Target: target, Limit: userPage}
	for range maxUserPages {
		page, next, err := h.Directory.List(ctx, q)
		switch {
		case err != nil:
			return "", false, err
		case len(page) > 0:
			return page[0].Session.UserID, true, nil
		case next == nil:
			return "", false, nil
		}
		q.After = *next
	}
	return "", false, nil
}

// pairedUser returns the user of a paired device whose credential names the id of a target.
func (h *handler) pairedUser(ctx context.Context, tenant string, target registry.Target) (string, bool, error) {
	if !target.Bound {
		return "", false, nil
	}
	paired, err := h.Credentials.PairedDevices(ctx, tenant, target.DeviceID)
	for i := range paired {
		if target.Sees(paired[i].User) {
			return paired[i].User, true, nil
		}
	}
	return "", false, err
}

// knownUser returns the user of a remembered device that matches a target.
func (h *handler) knownUser(ctx context.Context, tenant string, target registry.Target) (string, bool, error) {
	if h.Devices == nil {
		return "", false, nil
	}
	d, found, err := registry.FirstKnown(ctx, h.Devices, registry.KnownQuery{Tenant: tenant, Target: target})
	return d.Session.UserID, found, err
}

// registeredUser returns a user who registered a device and matches a target. A registration does not say whether a
// credential names the device.
func (h *handler) registeredUser(ctx context.Context, tenant string, target registry.Target) (string, bool, error) {
	switch {
	case target.Bound:
		return "", false, nil
	case target.UserID == "" && target.Viewer == "": // an admin's: the first user's
		all, err := h.Wakes.OfDevice(ctx, tenant, target.DeviceID)
		if err != nil || len(all) == 0 {
			return "", false, err
		}
		return all[0].User, true, nil
	}
	_, err := h.Wakes.Registered(ctx, registry.WakeRef{Tenant: tenant, User: target.UserID, DeviceID: target.DeviceID})
	if errors.Is(err, registry.CodeNotFound) {
		return "", false, nil
	}
	return target.UserID, err == nil, err
}

func (h *handler) deleteWake(c *gin.Context, _ *params) error {
	if err := h.mayChangeWake(c); err != nil {
		return err
	}
	ctx := storeContext(c)
	r, err := h.wakeOf(ctx, c)
	if err == nil {
		err = mayRegister(caller(c), r.User)
	}
	if err != nil {
		return err
	}
	noteAudit(c, auditDetail{device: r.DeviceID})
	if err := h.Wakes.Forget(ctx, r.Ref()); err != nil {
		return err
	}
	c.Status(http.StatusNoContent)
	return nil
}

package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/registry"
)

// ownOverlap is the overlap of a device that rotates its own credential: it may lose the answer, and be off for days.
const ownOverlap = 7 * 24 * time.Hour

func formerOf(c registry.Credential) *wire.FormerSecret {
	if c.Former == "" {
		return nil
	}
	return &wire.FormerSecret{ExpiresAt: shownTime(c.FormerEnds), LastUsed: optionalTime(c.FormerUsed)}
}

// Limits of the rotations that devices ask for, on this pod. Each is a line of the log that deviceChanges protects.
// They do not count with the changes that admins make: no device can keep its admins from revoking it.
var (
	deviceRotations = auth.Limit{Rate: 1.0 / 60, Burst: 10} // of one credential
	tenantRotations = auth.Limit{Rate: 0.5, Burst: 100}     // of a tenant
)

// mayRotateOwn counts a rotation that a device asks for, or fails if there are too many.
func (h *handler) mayRotateOwn(c *gin.Context) error {
	who := caller(c)
	if !h.deviceRotations.Take(who.Tenant+" "+who.Credential, 1) {
		e := registry.Errorf(registry.CodeRateLimited, "Nothing was changed: this device asks for a new credential too "+
			"often. The present one works. Retry later.")
		e.RetryAfter = time.Minute
		return e
	}
	return mayChange(c, h.tenantRotations, tenantRotations, "rotations by devices")
}

// readOverlap reads the body of a rotation.
func (h *handler) readOverlap(c *gin.Context, byDefault time.Duration) (time.Duration, error) {
	body, err := h.readBody(c)
	if err != nil {
		return 0, err
	}
	r, err := readStrict[wire.RotateRequest](orNothing(body), map[string]string{"overlap": wantSeconds})
	if err != nil {
		return 0, err
	}
	overlap := byDefault
	if r.has("overlap") {
		if r.said.Overlap < 0 || r.said.Overlap > int64(registry.MaxOverlap/time.Second) {
			return 0, wrongType("overlap", "0 to 7776000 seconds, which are 90 days")
		}
		overlap = time.Duration(r.said.Overlap) * time.Second
	}
	return overlap, nil
}

func (h *handler) rotateKey(c *gin.Context, _ *params) error {
	overlap, err := h.readOverlap(c, auth.DefaultOverlap)
	if err == nil {
		err = h.mayChangeKeys(c)
	}
	if err != nil {
		return err
	}
	secret, made, err := h.issuer().RotateKey(storeContext(c), caller(c), c.Param("id"), overlap)
	if err != nil {
		return err
	}
	noteAudit(c, auditDetail{target: made.ID, device: made.DeviceID, reason: "overlap: " + overlap.String()})
	return h.writeUncached(c, http.StatusOK, wire.CreatedKey{
		ID: made.ID, Key: secret, KeyAttributes: keyAttributesOf(made),
	})
}

// rotateDevice is for admins: approvers must not get a secret with which they could act as the device.
func (h *handler) rotateDevice(c *gin.Context, _ *params) error {
	overlap, err := h.readOverlap(c, auth.DefaultOverlap)
	if err == nil {
		err = h.mayChangeKeys(c)
	}
	if err != nil {
		return err
	}
	d, err := h.Pairing.Device(storeContext(c), h.approver(c), c.Param("id"))
	if err != nil {
		return err
	}
	if pairing.IsNode(d.Credential) {
		return h.renewNode(c, d.ID, overlap == 0)
	}
	secret, made, err := h.issuer().RotateDevice(storeContext(c), d.Credential, overlap, "")
	return h.writeRotated(c, secret, made, overlap, err)
}

// renewNode has an OpenClaw node get a new credential when it next connects. The response does not have it. If the
// current one leaked, the node's connection ends, and the node comes back at once.
func (h *handler) renewNode(c *gin.Context, id string, leaked bool) error {
	ctx, renew, reason := storeContext(c), h.Pairing.Renew, "on its next connection"
	if leaked {
		renew, reason = h.Pairing.RenewLeaked, "overlap: 0; its connection ends"
	}
	d, err := renew(ctx, h.approver(c), id)
	if err != nil {
		return err
	}
	if leaked {
		if err := h.disconnect(ctx, d.Credential); err != nil {
			return err
		}
	}
	noteAudit(c, auditDetail{target: d.ID, device: d.DeviceID, reason: reason})
	return h.writeUncached(c, http.StatusOK, wire.RotatedDevice{
		ID: d.ID, DeviceID: d.DeviceID, OnNextConnection: true, Former: formerOf(d.Credential),
	})
}

// disconnect ends the connection of a paired device, on any pod. Its conversation stays.
func (h *handler) disconnect(ctx context.Context, device registry.Credential) error {
	online, err := h.Directory.OnlineDevices(ctx, device.Tenant, []string{device.DeviceID})
	if err != nil {
		return err
	}
	e, ok := online[device.DeviceID]
	if !ok {
		return nil
	}
	if err := h.Kicker.Kick(ctx, e.Session); !errors.Is(err, registry.CodeNotConnected) {
		return err
	}
	return nil // it has gone
}

// rotateOwn gives a paired device a new credential. The one that it presented is kept for the overlap, so that a device
// which lost the answer asks again with the same.
func (h *handler) rotateOwn(c *gin.Context, _ *params) error {
	overlap, err := h.readOverlap(c, ownOverlap)
	if err != nil {
		return err
	}
	presented := auth.BearerHeader(c.Request)
	if kind, ok := auth.SecretKind(presented); !ok || kind != registry.CredentialDevice {
		return registry.Errorf(registry.CodeInvalidRequest,
			"Only a paired device rotates its credential here. Admins rotate API keys with POST /api/keys/{id}/rotate.")
	}
	if err := h.mayRotateOwn(c); err != nil {
		return err
	}
	digest := auth.SecretDigest(presented)
	own, err := h.Credentials.CredentialByDigest(storeContext(c), digest)
	if err != nil {
		return err
	}
	secret, made, err := h.issuer().RotateDevice(storeContext(c), own, overlap, digest)
	return h.writeRotated(c, secret, made, overlap, err)
}

func (h *handler) writeRotated(
	c *gin.Context, secret string, made registry.Credential, overlap time.Duration, err error,
) error {
	if err != nil {
		return err
	}
	noteAudit(c, auditDetail{target: made.ID, device: made.DeviceID, reason: "overlap: " + overlap.String()})
	return h.writeUncached(c, http.StatusOK, wire.RotatedDevice{
		ID: made.ID, DeviceID: made.DeviceID, Credential: secret, Former: formerOf(made),
	})
}

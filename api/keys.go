package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/registry"
)

// keyChanges limits how often the admins of a tenant may create keys, and revoke keys, users, devices and tokens, on
// this pod. Each revocation, and sooner or later each key, is a line of a log that all pods read for all tenants.
var keyChanges = auth.Limit{Rate: 50, Burst: 1000}

func (h *handler) mayChangeKeys(c *gin.Context) error {
	return mayChange(c, h.keyChanges, keyChanges, "changes of keys and revocations")
}

func keyAttributesOf(c registry.Credential) wire.KeyAttributes {
	return wire.KeyAttributes{
		Tenant: c.Tenant, Name: c.Name, Roles: append([]string{}, c.Roles...), UserID: c.User,
		DeviceID: c.DeviceID, Tools: c.Tools, Context: c.Context, Person: c.Person,
		CreatedAt: shownTime(c.CreatedAt), CreatedBy: c.CreatedBy, ExpiresAt: optionalTime(c.ExpiresAt),
		LastUsed: optionalTime(c.LastUsed), Former: formerOf(c),
	}
}

func keyOf(c registry.Credential) wire.Key {
	return wire.Key{ID: c.ID, KeyAttributes: keyAttributesOf(c)}
}

func (h *handler) issuer() auth.Issuer { return auth.Issuer{Store: h.Credentials} }

func (h *handler) listKeys(c *gin.Context, q *params) error {
	query := registry.CredentialQuery{
		Tenant: caller(c).Tenant, Kind: registry.CredentialKey, User: q.get("user_id"), Limit: q.limit(),
		After: q.cursor(cursorKeys).Name,
	}
	if err := q.failed(); err != nil {
		return err
	}
	page, next, err := h.Credentials.Credentials(storeContext(c), query)
	if err != nil {
		return err
	}
	return h.writeJSON(c, http.StatusOK, wire.KeyList{
		Keys: each(page, keyOf), NextCursor: nextCursor(cursorKeys, next),
	})
}

func (h *handler) createKey(c *gin.Context, _ *params) error {
	r, err := readAs(h, c, parseKeyRequest)
	if err != nil {
		return err
	}
	if err := h.mayChangeKeys(c); err != nil {
		return err
	}
	secret, made, err := h.issuer().CreateKey(storeContext(c), caller(c), r)
	if err != nil {
		return err
	}
	noteAudit(c, auditDetail{target: made.ID, device: made.DeviceID, reason: rightsOf(made)})
	return h.writeUncached(c, http.StatusCreated, wire.CreatedKey{
		ID: made.ID, Key: secret, KeyAttributes: keyAttributesOf(made),
	})
}

func rightsOf(c registry.Credential) string {
	text := "roles: " + strings.Join(c.Roles, ", ")
	for _, part := range [...]struct{ name, value string }{
		{"user", c.User}, {"tools", c.Tools}, {"context", c.Context},
	} {
		if part.value != "" {
			text += "; " + part.name + ": " + part.value
		}
	}
	if c.Person {
		text += "; a person's program over MCP"
	}
	return text
}

func (h *handler) revokeKey(c *gin.Context, _ *params) error {
	if err := h.mayChangeKeys(c); err != nil {
		return err
	}
	if _, err := h.issuer().RevokeKey(storeContext(c), caller(c).Tenant, c.Param("id")); err != nil {
		return err
	}
	c.Status(http.StatusNoContent)
	return nil
}

func (h *handler) revoke(c *gin.Context, _ *params) error {
	body, err := h.readBody(c)
	if err != nil {
		return err
	}
	kind, id, err := parseRevocation(body)
	if err != nil {
		return err
	}
	noteAudit(c, auditDetail{target: string(kind) + ":" + id})
	if err := h.mayChangeKeys(c); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), revokeTimeout)
	defer cancel()
	removed, err := h.issuer().Revoke(ctx, caller(c).Tenant, kind, id)
	if err == nil && h.Devices != nil {
		switch kind {
		case registry.ChangeUser:
			err = h.Devices.ForgetDevices(ctx, caller(c).Tenant, id)
		case registry.ChangeDevice:
			err = h.Devices.ForgetDevices(ctx, caller(c).Tenant, "", id)
		}
	}
	if err != nil {
		return err
	}
	return h.writeJSON(c, http.StatusOK, wire.Revoked{Credentials: removed})
}

// revokeTimeout bounds a revocation. It may have to delete all credentials of a user.
const revokeTimeout = 20 * time.Second

// maxRoles is the maximum number of roles in a request. There are fewer roles.
const maxRoles = 16

// Valid values of fields of a wire.KeyRequest, for errors.
const (
	wantRoles   = "a short list of names"
	wantSeconds = "a number of seconds"
)

func parseKeyRequest(body []byte) (auth.KeyRequest, error) {
	r, err := readStrict[wire.KeyRequest](body, map[string]string{
		"roles": wantRoles, "person": "true or false", "expires_in": wantSeconds,
	})
	if err == nil && len(r.said.Roles) > maxRoles {
		err = wrongType("roles", wantRoles)
	}
	if err != nil {
		return auth.KeyRequest{}, err
	}
	k := r.said
	expires, err := readExpiry(r)
	return auth.KeyRequest{
		Tenant: k.Tenant, Name: k.Name, Roles: k.Roles, User: k.UserID, Device: k.DeviceID, Tools: k.Tools,
		Context: k.Context, Person: k.Person, Expires: expires,
	}, err
}

func readExpiry(r request[wire.KeyRequest]) (time.Time, error) {
	at, in := r.said.ExpiresAt, r.said.ExpiresIn
	switch {
	case at != "" && r.has("expires_in"):
		return time.Time{}, registry.Errorf(registry.CodeInvalidRequest,
			"The fields \"expires_at\" and \"expires_in\" cannot be combined.")
	case at != "":
		end, err := time.Parse(time.RFC3339, at)
		if err != nil {
			return time.Time{}, wrongType("expires_at", "a time such as 2030-01-31T12:00:00Z")
		}
		return end, nil
	case r.has("expires_in"):
		return expiresIn(in)
	}
	return time.Time{}, nil
}

// expiresIn returns the time in so many seconds.
func expiresIn(seconds int64) (time.Time, error) {
	if seconds <= 0 || seconds > int64(100*365*24*time.Hour/time.Second) {
		return time.Time{}, wrongType("expires_in", wantSeconds)
	}
	return time.Now().Add(time.Duration(seconds) * time.Second), nil
}

// parseRevocation parses the body of a revocation. Exactly one of its fields must be present.
func parseRevocation(body []byte) (kind registry.ChangeKind, id string, err error) {
	r, err := readStrict[wire.Revocation](body, nil)
	if err != nil {
		return "", "", err
	}
	switch len(r.fields) {
	case 0:
		return "", "", registry.Errorf(registry.CodeInvalidRequest,
			"Send one of user_id, device_id, credential or jti.")
	case 1:
		kinds := map[string]registry.ChangeKind{
			"user_id": registry.ChangeUser, "device_id": registry.ChangeDevice,
			"credential": registry.ChangeCredential, "jti": registry.ChangeJWT,
		}
		said := r.said
		return kinds[string(r.fields[0].Name)], said.UserID + said.DeviceID + said.Credential + said.JTI, nil
	default:
		return "", "", registry.Errorf(registry.CodeInvalidRequest, "Send only one of user_id, device_id, credential "+
			"and jti.")
	}
}

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
		e := registry.Errorf(registry.CodeRateLimited, "Nothing was changed: this device asks for a new credential "+
			"too often. The present one works. Retry later.")
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

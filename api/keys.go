package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
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

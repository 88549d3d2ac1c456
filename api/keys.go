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

// mayChangeKeys counts the creation of a key or a revocation, or fails if there are too many.
func (h *handler) mayChangeKeys(c *gin.Context) error {
	return mayChange(c, h.keyChanges, keyChanges, "keys and revocations")
}

func keyAttributesOf(c registry.Credential) wire.KeyAttributes {
	k := wire.KeyAttributes{
		Tenant: c.Tenant, Name: c.Name, Roles: append([]string{}, c.Roles...), UserID: c.User,
		DeviceID: c.DeviceID, Tools: c.Tools, Context: c.Context, Person: c.Person,
		CreatedAt: shownTime(c.CreatedAt), CreatedBy: c.CreatedBy,
	}
	if !c.ExpiresAt.IsZero() {
		k.ExpiresAt = shownTime(c.ExpiresAt)
	}
	if !c.LastUsed.IsZero() {
		k.LastUsed = shownTime(c.LastUsed)
	}
	return k
}

// issuer returns the issuer that creates and revokes credentials. It fails if there is no store for them.
func (h *handler) issuer() (auth.Issuer, error) {
	if h.Credentials == nil {
		return auth.Issuer{}, registry.Errorf(registry.CodeNotFound, "This gateway has no store for API keys.")
	}
	return auth.Issuer{Store: h.Credentials}, nil
}

// listKeys lists the API keys of the caller's tenant, the oldest first.
func (h *handler) listKeys(c *gin.Context, q params) error {
	if _, err := h.issuer(); err != nil {
		return err
	}
	limit, err := q.limit()
	if err != nil {
		return err
	}
	from, err := q.cursor(cursorKeys)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	defer cancel()
	page, next, err := h.Credentials.Credentials(ctx, registry.CredentialQuery{
		Tenant: caller(c).Tenant, Kind: registry.CredentialKey, User: q.get("user_id"), After: from.Name, Limit: limit,
	})
	if err != nil {
		return err
	}
	answer := wire.KeyList{Keys: make([]wire.Key, len(page))}
	for i, key := range page {
		answer.Keys[i] = wire.Key{ID: key.ID, KeyAttributes: keyAttributesOf(key)}
	}
	if next != "" {
		answer.NextCursor = cursor{Kind: cursorKeys, Name: next}.String()
	}
	return h.writeJSON(c, http.StatusOK, answer)
}

// createKey creates an API key.
func (h *handler) createKey(c *gin.Context, _ params) error {
	issuer, err := h.issuer()
	if err != nil {
		return err
	}
	body, err := h.readBody(c)
	if err != nil {
		return err
	}
	r, err := parseKeyRequest(body)
	if err != nil {
		return err
	}
	if err := h.mayChangeKeys(c); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	defer cancel()
	secret, made, err := issuer.CreateKey(ctx, caller(c), r)
	if err != nil {
		return err
	}
	noteAudit(c, auditDetail{target: made.ID, device: made.DeviceID, reason: rightsOf(made)})
	c.Header("Cache-Control", "no-store")
	return h.writeJSON(c, http.StatusCreated, wire.CreatedKey{
		ID: made.ID, Key: secret, KeyAttributes: keyAttributesOf(made),
	})
}

// rightsOf describes a key's rights for the audit log.
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

// revokeKey removes an API key.
func (h *handler) revokeKey(c *gin.Context, _ params) error {
	issuer, err := h.issuer()
	if err != nil {
		return err
	}
	if err := h.mayChangeKeys(c); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	defer cancel()
	if _, err := issuer.RevokeKey(ctx, caller(c).Tenant, c.Param("id")); err != nil {
		return err
	}
	c.Status(http.StatusNoContent)
	return nil
}

// revoke revokes a user, a device, a credential or a JWT of the caller's tenant.
func (h *handler) revoke(c *gin.Context, _ params) error {
	issuer, err := h.issuer()
	if err != nil {
		return err
	}
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
	removed, err := issuer.Revoke(ctx, caller(c).Tenant, kind, id)
	if err != nil {
		return err
	}
	return h.writeJSON(c, http.StatusOK, wire.Revoked{Credentials: removed})
}

// revokeTimeout bounds a revocation. It may have to delete all credentials of a user.
const revokeTimeout = 20 * time.Second

// maxRoles is the maximum number of roles in a request. There are fewer roles.
const maxRoles = 16

// What fields of a wire.KeyRequest must be.
const (
	wantRoles   = "a short list of names"
	wantSeconds = "a number of seconds"
)

// parseKeyRequest parses the body of a request for an API key.
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

// readExpiry reads when a key expires: at a time, or after some seconds. The zero time is never.
func readExpiry(r request[wire.KeyRequest]) (time.Time, error) {
	at, in := r.said.ExpiresAt, r.said.ExpiresIn
	switch {
	case at != "" && r.has("expires_in"):
		return time.Time{}, registry.Errorf(registry.CodeInvalidRequest,
			"The fields \"expires_at\" and \"expires_in\" exclude one another.")
	case at != "":
		end, err := time.Parse(time.RFC3339, at)
		if err != nil {
			return time.Time{}, wrongType("expires_at", "a time such as 2030-01-31T12:00:00Z")
		}
		return end, nil
	case r.has("expires_in"):
		if in <= 0 || in > int64(100*365*24*time.Hour/time.Second) {
			return time.Time{}, wrongType("expires_in", wantSeconds)
		}
		return time.Now().Add(time.Duration(in) * time.Second), nil
	}
	return time.Time{}, nil
}

// parseRevocation parses the body of a revocation. Exactly one of its fields must be present.
func parseRevocation(body []byte) (kind registry.ChangeKind, id string, err error) {
	r, err := readStrict[wire.Revocation](body, nil)
	if err != nil {
		return "", "", err
	}
	for _, k := range []struct {
		kind registry.ChangeKind
		id   string
	}{
		{registry.ChangeUser, r.said.UserID}, {registry.ChangeDevice, r.said.DeviceID},
		{registry.ChangeCredential, r.said.Credential}, {registry.ChangeJWT, r.said.JTI},
	} {
		switch {
		case k.id == "":
		case kind != "":
			return "", "", registry.Errorf(registry.CodeInvalidRequest, "Revoke one thing at a time.")
		default:
			kind, id = k.kind, k.id
		}
	}
	if kind == "" {
		return "", "", registry.Errorf(registry.CodeInvalidRequest,
			"Name what to revoke: user_id, device_id, credential or jti.")
	}
	return kind, id, nil
}

package api

import (
	"context"
	"encoding/json"
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

// parseKeyRequest parses the body of a request for an API key.
func parseKeyRequest(body []byte) (r auth.KeyRequest, err error) {
	texts := map[string]*string{
		"name": &r.Name, "user_id": &r.User, "device_id": &r.Device, "tools": &r.Tools, "context": &r.Context,
		"tenant": &r.Tenant,
	}
	fields, err := readBodyObject(body, "name", "roles", "user_id", "device_id", "tools", "context", "tenant",
		"person", "expires_at", "expires_in")
	if err != nil {
		return r, err
	}
	for name, field := range texts {
		if text, ok := fields.get(name); ok {
			if *field, err = readString(text, name); err != nil {
				return r, err
			}
		}
	}
	if text, ok := fields.get("roles"); ok {
		if json.Unmarshal(text, &r.Roles) != nil || len(r.Roles) > maxRoles {
			return r, wrongType("roles", "a short list of names")
		}
	}
	if text, ok := fields.get("person"); ok && json.Unmarshal(text, &r.Person) != nil {
		return r, wrongType("person", "true or false")
	}
	r.Expires, err = readExpiry(fields)
	return r, err
}

// readExpiry reads when a key expires: at a time, or after some seconds. The zero time is never.
func readExpiry(fields memberList) (time.Time, error) {
	at, hasTime := fields.get("expires_at")
	in, hasSeconds := fields.get("expires_in")
	switch {
	case hasTime && hasSeconds:
		return time.Time{}, registry.Errorf(registry.CodeInvalidRequest,
			"The fields \"expires_at\" and \"expires_in\" exclude one another.")
	case hasTime:
		text, err := readString(at, "expires_at")
		if err != nil {
			return time.Time{}, err
		}
		end, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return time.Time{}, wrongType("expires_at", "a time such as 2030-01-31T12:00:00Z")
		}
		return end, nil
	case hasSeconds:
		var seconds int64
		if json.Unmarshal(in, &seconds) != nil || seconds <= 0 || seconds > int64(100*365*24*time.Hour/time.Second) {
			return time.Time{}, wrongType("expires_in", "a number of seconds")
		}
		return time.Now().Add(time.Duration(seconds) * time.Second), nil
	}
	return time.Time{}, nil
}

// parseRevocation parses the body of a revocation. Exactly one of its fields must be present.
func parseRevocation(body []byte) (kind registry.ChangeKind, id string, err error) {
	kinds := []struct {
		field string
		kind  registry.ChangeKind
	}{
		{"user_id", registry.ChangeUser}, {"device_id", registry.ChangeDevice},
		{"credential", registry.ChangeCredential}, {"jti", registry.ChangeJWT},
	}
	fields, err := readBodyObject(body, "user_id", "device_id", "credential", "jti")
	if err != nil {
		return "", "", err
	}
	for _, k := range kinds {
		text, ok := fields.get(k.field)
		if !ok {
			continue
		}
		if kind != "" {
			return "", "", registry.Errorf(registry.CodeInvalidRequest, "Revoke one thing at a time.")
		}
		if id, err = readString(text, k.field); err != nil {
			return "", "", err
		}
		kind = k.kind
	}
	if kind == "" || id == "" {
		return "", "", registry.Errorf(registry.CodeInvalidRequest,
			"Name what to revoke: user_id, device_id, credential or jti.")
	}
	return kind, id, nil
}

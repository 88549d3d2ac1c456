package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// keyChanges is how often the admins of a tenant may make and revoke keys, users, devices and tokens on this pod. Each
// revocation, and each key sooner or later, is a line of the log that all pods read for all tenants.
var keyChanges = auth.Limit{Rate: 50, Burst: 1000}

// mayChangeKeys counts a key that is made or something that is revoked.
func (h *handler) mayChangeKeys(c *gin.Context) error {
	return mayChange(c, h.keyChanges, keyChanges, "keys and revocations")
}

// apiKey is a key as admins see it. The key itself is in the answer that creates it, and nowhere else.
type apiKey struct {
	ID        string   `json:"id"`
	Key       string   `json:"key,omitempty"`
	Tenant    string   `json:"tenant"`
	Name      string   `json:"name,omitempty"`
	Roles     []string `json:"roles"`
	UserID    string   `json:"user_id,omitempty"`
	DeviceID  string   `json:"device_id,omitempty"`
	Tools     string   `json:"tools,omitempty"`
	Context   string   `json:"context,omitempty"`
	Person    bool     `json:"person,omitempty"`
	CreatedAt string   `json:"created_at"`
	CreatedBy string   `json:"created_by,omitempty"`
	ExpiresAt string   `json:"expires_at,omitempty"`
	LastUsed  string   `json:"last_used_at,omitempty"`
}

func apiKeyOf(c registry.Credential) apiKey {
	k := apiKey{
		ID: c.ID, Tenant: c.Tenant, Name: c.Name, Roles: append([]string{}, c.Roles...), UserID: c.User,
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

// issuer returns what makes and revokes credentials.
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
	answer := struct {
		Keys []apiKey `json:"keys"`
		Next string   `json:"next_cursor,omitempty"`
	}{Keys: make([]apiKey, len(page))}
	for i, key := range page {
		answer.Keys[i] = apiKeyOf(key)
	}
	if next != "" {
		answer.Next = cursor{Kind: cursorKeys, Name: next}.String()
	}
	return h.writeJSON(c, http.StatusOK, answer)
}

// createKey makes an API key.
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
	answer := apiKeyOf(made)
	answer.Key = secret
	return h.writeJSON(c, http.StatusCreated, answer)
}

// rightsOf says for the audit log what a key is good for.
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
	return h.writeJSON(c, http.StatusOK, struct {
		Credentials int `json:"credentials"`
	}{removed})
}

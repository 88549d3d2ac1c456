package api

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/registry"
)

// grantRow is a grant as clients see it.
type grantRow struct {
	ID         string            `json:"id"`
	Tool       string            `json:"tool"`
	SchemaHash string            `json:"schema_hash"`
	ArgsDigest string            `json:"args_digest,omitempty"`
	SessionID  string            `json:"session_id,omitempty"`
	DeviceID   string            `json:"device_id,omitempty"`
	UserID     string            `json:"user_id,omitempty"`
	Requester  approvalRequester `json:"requester"`
	ApprovalID string            `json:"approval_id"`
	GrantedBy  string            `json:"granted_by"`
	CreatedAt  string            `json:"created_at"`
	ExpiresAt  string            `json:"expires_at"`
}

func grantRowOf(g registry.Grant) grantRow {
	return grantRow{
		ID: g.ID, Tool: g.Tool, SchemaHash: g.DefinitionHash, ArgsDigest: g.ArgsDigest, SessionID: g.SessionID,
		DeviceID: g.DeviceID, UserID: g.Owner,
		Requester:  requesterOf(g.Requester, g.Model),
		ApprovalID: g.Approval, GrantedBy: g.GrantedBy, CreatedAt: shownTime(g.CreatedAt),
		ExpiresAt: shownTime(g.ExpiresAt),
	}
}

// listGrants lists what "allow always" has granted.
func (h *handler) listGrants(c *gin.Context, _ params) error {
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	defer cancel()
	all, err := h.Approvals.Grants(ctx, caller(c))
	if err != nil {
		return err
	}
	answer := struct {
		Grants []grantRow `json:"grants"`
	}{make([]grantRow, len(all))}
	for i, g := range all {
		answer.Grants[i] = grantRowOf(g)
	}
	return h.respond(c, answer)
}

// revokeGrant revokes a grant.
func (h *handler) revokeGrant(c *gin.Context, _ params) error {
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	defer cancel()
	g, err := h.Approvals.Revoke(ctx, caller(c), c.Param("id"))
	if err != nil {
		return err
	}
	return h.writeJSON(c, http.StatusOK, grantRowOf(g))
}

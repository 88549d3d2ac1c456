package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/approval"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/registry"
)

// Approvals reads and decides approvals. *approval.Service implements it. For an approval that the identity may not
// see, it fails with registry.CodeNotFound.
type Approvals interface {
	Pending(ctx context.Context, who auth.Identity) ([]registry.Approval, error)
	Wait(ctx context.Context, who auth.Identity, id string, wait time.Duration) (registry.Approval, error)
	Decide(ctx context.Context, who auth.Identity, id string, d approval.Decision) (approval.Answer, error)
	Grants(ctx context.Context, who auth.Identity) ([]registry.Grant, error)
	Revoke(ctx context.Context, who auth.Identity, id string) (registry.Grant, error)

	// Withdraw withdraws the approval of a call that was cancelled.
	Withdraw(ctx context.Context, tenant, id string)

	// CountWrongAnswer counts an answer that is not a decision. It returns zero if the approval is not open any more.
	CountWrongAnswer(ctx context.Context, tenant, id string) (int, error)
}

func requesterOf(r registry.Requester, model bool) wire.Requester {
	return wire.Requester{UserID: r.User, Credential: r.Credential, Name: r.Name, Model: model}
}

func approvalRowOf(a registry.Approval, reader auth.Identity) wire.ApprovalRow {
	row := wire.ApprovalRow{
		ID: a.ID, CallID: a.CallID, Tool: a.Tool, State: a.State, Reason: a.Reason, Rule: a.Rule,
		SessionID: a.SessionID, DeviceID: a.DeviceID, DeviceName: a.DeviceName, Devices: a.Devices, UserID: a.Owner,
		Requester: requesterOf(a.Requester, a.Model), Mode: registry.ModeSync,
		TurnID: a.Turn, ArgsDigest: a.ArgsDigest, SchemaHash: a.DefinitionHash, Arguments: a.Arguments,
		Effects: a.Effects, CreatedAt: shownTime(a.CreatedAt), ExpiresAt: shownTime(a.ExpiresAt),
		DecidedBy: a.DecidedBy, DecidedAt: optionalTime(a.DecidedAt), Scope: a.Scope, Comment: a.Comment, By: a.By,
		Approvers: a.Approvers, AllowedBy: a.AllowedBy,
		MayDecide: !a.Final() && approval.MayDecide(reader, a),
	}
	if a.Deferred {
		row.Mode = registry.ModeAsync
	}
	return row
}

func approvalOf(a registry.Approval, reader auth.Identity) wire.Approval {
	text, remarks := approval.Shown(a.Args)
	return wire.Approval{
		ApprovalRow: approvalRowOf(a, reader), Args: a.Args, ArgsText: text, Remarks: append([]string{}, remarks...),
	}
}

func (h *handler) listApprovals(c *gin.Context, _ *params) error {
	ctx := storeContext(c)
	all, err := h.Approvals.Pending(ctx, caller(c))
	if err != nil {
		return err
	}
	alike, err := h.lookAlikes(ctx, c, all...)
	if err != nil {
		return err
	}
	return h.respond(c, wire.ApprovalList{Approvals: each(all, func(a registry.Approval) wire.ApprovalRow {
		row := approvalRowOf(a, caller(c))
		row.LooksLike = alike[a.DeviceID]
		return row
	})})
}

// getApproval returns one approval: immediately, or when it is decided or the wait ends.
func (h *handler) getApproval(c *gin.Context, q *params) error {
	wait, release, err := h.beginWait(c, q)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeout(c.Request.Context(), wait+storeTimeout)
	defer cancel()
	waiting, stop := h.untilDraining(ctx)
	defer stop()
	a, err := h.Approvals.Wait(waiting, caller(c), c.Param("id"), wait)
	if err != nil {
		return err
	}
	alike, err := h.lookAlikes(ctx, c, a)
	if err != nil {
		return err
	}
	shown := approvalOf(a, caller(c))
	shown.LooksLike = alike[a.DeviceID]
	return h.respond(c, shown)
}

// lookAlikes returns, by device id, the paired devices that the devices of approvals can be mistaken for.
func (h *handler) lookAlikes(
	ctx context.Context, c *gin.Context, approvals ...registry.Approval,
) (map[string]string, error) {
	if h.Pairing == nil {
		return nil, nil
	}
	ids := each(approvals, func(a registry.Approval) string { return a.DeviceID })
	return h.Pairing.LookAlikes(ctx, h.approver(c), ids...)
}

// decideApproval decides an approval. If it was decided already, the answer has the first decision.
func (h *handler) decideApproval(c *gin.Context, _ *params) error {
	if c.ContentType() != "application/json" { // a foreign page cannot send this type without a CORS preflight
		return registry.Errorf(registry.CodeUnsupportedMedia, "Send the decision as application/json.")
	}
	d, err := readAs(h, c, parseDecision)
	if err != nil {
		return err
	}
	answer, err := h.Approvals.Decide(storeContext(c), caller(c), c.Param("id"), d)
	if err != nil {
		return err
	}
	shown := wire.Decision{Approval: approvalOf(answer.Approval, caller(c)), Decided: answer.Decided}
	if answer.Grant != nil {
		shown.Grant = new(grantOf(*answer.Grant))
	}
	return h.writeUncached(c, http.StatusOK, shown)
}

func parseDecision(body []byte) (d approval.Decision, err error) {
	life := fmt.Sprintf("a whole number from 1 to %d", registry.MaxGrantLife.Milliseconds())
	r, err := readStrict[wire.DecisionRequest](body, map[string]string{"expires_in_ms": life})
	if err != nil {
		return d, err
	}
	scope, ms, limited := r.said.Scope, r.said.ExpiresInMS, r.has("expires_in_ms")
	switch {
	case scope != "" && scope != wire.ScopeTool && scope != wire.ScopeArguments:
		return d, wrongType("scope", fmt.Sprintf("%q or %q", wire.ScopeTool, wire.ScopeArguments))
	case limited && (ms <= 0 || ms > registry.MaxGrantLife.Milliseconds()):
		return d, wrongType("expires_in_ms", life)
	}
	if d.Comment = r.said.Comment; len(d.Comment) > registry.MaxComment {
		return d, wrongType("comment", fmt.Sprintf("at most %d bytes", registry.MaxComment))
	}
	switch r.said.Decision {
	case wire.DecisionAlways:
		d.Allow, d.Scope, d.GrantLife = true, registry.ScopeAlwaysArgs, time.Duration(ms)*time.Millisecond
		if scope == wire.ScopeTool {
			d.Scope = registry.ScopeAlwaysTool
		}
		return d, nil
	case wire.DecisionOnce, wire.DecisionDeny:
		d.Allow = r.said.Decision == wire.DecisionOnce
	default:
		return d, wrongType("decision", `"allow-once", "allow-always" or "deny"`)
	}
	if scope != "" || limited {
		return d, registry.Errorf(registry.CodeInvalidRequest,
			"scope and expires_in_ms are allowed only with the decision %q.", wire.DecisionAlways)
	}
	return d, nil
}

func (h *handler) withdrawApproval(ctx context.Context, r registry.Record) {
	if r.Approval != "" && r.State == registry.StateCancelled && r.Dispatched == registry.DispatchedNo {
		h.Approvals.Withdraw(ctx, r.Tenant, r.Approval)
	}
}

func grantOf(g registry.Grant) wire.Grant {
	return wire.Grant{
		ID: g.ID, Tool: g.Tool, SchemaHash: g.DefinitionHash, ArgsDigest: g.ArgsDigest, SessionID: g.SessionID,
		DeviceID: g.DeviceID, UserID: g.Owner,
		Requester:  requesterOf(g.Requester, g.Model),
		ApprovalID: g.Approval, GrantedBy: g.GrantedBy, CreatedAt: shownTime(g.CreatedAt),
		ExpiresAt: shownTime(g.ExpiresAt),
	}
}

func (h *handler) listGrants(c *gin.Context, _ *params) error {
	all, err := h.Approvals.Grants(storeContext(c), caller(c))
	if err != nil {
		return err
	}
	return h.respond(c, wire.GrantList{Grants: each(all, grantOf)})
}

func (h *handler) revokeGrant(c *gin.Context, _ *params) error {
	g, err := h.Approvals.Revoke(storeContext(c), caller(c), c.Param("id"))
	if err != nil {
		return err
	}
	return h.writeJSON(c, http.StatusOK, grantOf(g))
}

package api

import (
	"cmp"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/registry"
)

// keyAudit names what a request turned out to do in its context.
const keyAudit = "farhand.audit"

// auditDetail is what only its handler knows of a request. Empty fields are as the path says.
type auditDetail struct {
	action  string // what it was in truth; empty: as the route says
	target  string // the id of what was made or decided; no secret
	device  string // its device_id
	outcome string // of a request that did not fail; default registry.AuditAllowed
	reason  string // what was decided
}

// audited returns a handler that notes in the audit log what handle did, or failed to do. What the path names is what
// it is about: :id is a session below /api/sessions, a call below /api/calls, and else the target. A handler that knows
// more says so with noteAudit.
func (h *handler) audited(action string, handle handlerFunc) handlerFunc {
	return func(c *gin.Context, q params) error {
		err := handle(c, q)
		who := caller(c)
		e := registry.AuditEntry{Tenant: who.Tenant, Actor: who.Actor(), Action: action}
		switch id := c.Param("id"); action {
		case registry.AuditSessionKick, registry.AuditSessionRename, registry.AuditTurnAbort:
			e.SessionID = id
		case registry.AuditCallCancel:
			e.CallID = id
		default:
			e.Target = id
		}
		d, _ := c.Value(keyAudit).(auditDetail)
		e.Action, e.Target, e.DeviceID = cmp.Or(d.action, e.Action), cmp.Or(d.target, e.Target), d.device
		if e.Decide(err); err == nil {
			e.Outcome, e.Reason = cmp.Or(d.outcome, e.Outcome), d.reason
		}
		h.Audit.Note(e)
		return err
	}
}

// noteAudit says what a request turned out to do.
func noteAudit(c *gin.Context, d auditDetail) { c.Set(keyAudit, d) }

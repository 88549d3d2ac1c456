package api

import (
	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/registry"
)

// keyAuditTarget names what a request turned out to be about in its context.
const keyAuditTarget = "farhand.audit.target"

// audited returns a handler that notes in the audit log what handle did, or failed to do. What the path names is what
// it is about: :id is a session below /api/sessions, a call below /api/calls, and else the target. A handler that makes
// what it is about says so with noteTarget.
func (h *handler) audited(action string, handle handlerFunc) handlerFunc {
	return func(c *gin.Context, q params) error {
		err := handle(c, q)
		who := caller(c)
		e := registry.AuditEntry{Tenant: who.Tenant, Actor: h.Sources.ActorOf(who, c.Request), Action: action}
		switch id := c.Param("id"); action {
		case registry.AuditSessionKick, registry.AuditSessionRename, registry.AuditTurnAbort:
			e.SessionID = id
		case registry.AuditCallCancel:
			e.CallID = id
		default:
			e.Target = id
		}
		if target := c.GetString(keyAuditTarget); target != "" {
			e.Target = target
		}
		e.Decide(err)
		h.Audit.Note(e)
		return err
	}
}

// noteTarget says what a request turned out to be about: the id of a key that it made, for example. It is no secret.
func noteTarget(c *gin.Context, id string) { c.Set(keyAuditTarget, id) }

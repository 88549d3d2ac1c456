package api

import (
	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/registry"
)

// audit notes what the caller of a request did, or failed to do: err says which. The caller fills in the action and
// what it is about.
func (h *handler) audit(c *gin.Context, e registry.AuditEntry, err error) {
	who := caller(c)
	e.Tenant, e.Actor = who.Tenant, h.Sources.ActorOf(who, c.Request)
	e.Decide(err)
	h.Audit.Note(e)
}

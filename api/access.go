package api

import (
	"errors"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
)

// access says who may use a route: those who have one of its roles. Admins may use every route. A route without access
// is a mistake that NewHandler refuses.
type access uint16

// Those who may use a route. Several are joined with |, but everybody stands alone.
const (
	devices   = access(auth.RoleDevice)
	callers   = access(auth.RoleCaller)
	approvers = access(auth.RoleApprover)

	admins    access = 1 << 14 // nobody else
	everybody access = 1 << 15 // also those without credentials, who are not asked for any
)

// roles are the roles of access, beside admin.
const roles = devices | callers | approvers

func (a access) validate() error {
	switch {
	case a == everybody, a == admins, a&roles != 0 && a&^roles == 0:
		return nil
	default:
		return errors.New("the line of the route does not say who may use it")
	}
}

// authorize refuses a request whose identity may not use the route.
func (h *handler) authorize(c *gin.Context, a access) error {
	if a == everybody {
		return nil
	}
	if _, known := c.Get(keyCaller); !known {
		if err := h.identifyCaller(c); err != nil {
			return err
		}
	}
	if who := caller(c); !who.Has(auth.Roles(a & roles)) {
		h.challenge(c, insufficientScope)
		return auth.NeedRole(who, a.names()...)
	}
	return nil
}

// names returns the roles of access.
func (a access) names() []string {
	if a == admins {
		return []string{auth.NameAdmin}
	}
	return auth.Identity{Roles: auth.Roles(a & roles)}.RoleNames()
}

package ws

import "github.com/farhand/farhand/agent/access/auth"

// frameRoles returns which of a connection's roles let its device send a frame of a type: one of them is enough. A type
// without roles is refused, also for admins, so that no frame can be handled whose line here was forgotten. The
// connection itself needs the role device; talking to the agent over it needs no other role.
func frameRoles(typ string) auth.Roles {
	switch typ {
	case typeConnect, typeRegisterTools, typeUnregisterTools, typeGetRegisteredTools,
		typeToolCallAccepted, typeToolProgress, typeToolResult, typeToolError, typeApprovalResponse,
		typeUploadRequest, typeHello, typeMCP:
		return auth.RoleDevice
	case typeMessage, typeAbort, typeRegenerate:
		return auth.RoleDevice | auth.RoleCaller
	default:
		return 0
	}
}

// mayFrame refuses a frame that the connection's roles do not let its device send.
func (c *conn) mayFrame(typ string) error {
	roles := frameRoles(typ)
	if roles != 0 && c.who.Has(roles) {
		return nil
	}
	refused := auth.NeedRole(*c.who, auth.Identity{Roles: roles}.RoleNames()...)
	return &frameError{codeForbidden, typ + ": " + refused.Message}
}

// shared returns where an identity is kept. Connections that follow one another with equal identities share it, as all
// do that have the one token.
func (s *Server) shared(id auth.Identity) *auth.Identity {
	if last := s.identity.Load(); last != nil && *last == id {
		return last
	}
	s.identity.Store(&id)
	return &id
}

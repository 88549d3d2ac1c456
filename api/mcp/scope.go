package mcp

import (
	"github.com/farhand/farhand/registry"
)

// Scope is what a path of the endpoint is about: everything of the identity, one user, or one session.
type Scope struct {
	User, Session string

	// Search shows two tools instead of all: one that finds tools, and one that calls them.
	Search bool
}

// target selects the sessions of the scope.
func (s Scope) target(viewer string) registry.Target {
	return registry.Target{UserID: s.User, SessionID: s.Session, Viewer: viewer}
}

// hasLocalTools reports whether the gateway's own tools are in the scope: they belong to no user and no session.
func (s Scope) hasLocalTools() bool { return s.User == "" && s.Session == "" }

// text says for a model what the scope is.
func (s Scope) text() string {
	switch {
	case s.Session != "":
		return "The tools run on one device, the session " + s.Session + "."
	case s.User != "":
		return "The tools run on the devices of the user " + s.User + "."
	default:
		return "The tools run on devices."
	}
}

package mcp

import (
	"context"
	"errors"

	"github.com/farhand/farhand/registry"
)

// session reads the session of the scope. One that is away has no tools. One that the caller may not see is unknown.
func (s *Server) session(ctx context.Context, r *request) (registry.Entry, error) {
	key := registry.Key{Tenant: r.Caller.Tenant, Session: r.Scope.Session}
	if key.Validate() != nil { // an impossible id is an unknown one; it never reaches the store
		return registry.Entry{}, registry.UnknownSession()
	}
	e, err := s.cfg.Directory.Entry(ctx, key)
	away := errors.Is(err, registry.CodeNotConnected)
	if (err == nil || away) && !r.Caller.Sees(e.Session.UserID) {
		return registry.Entry{}, registry.UnknownSession()
	}
	if away {
		e.Tools, err = nil, nil
	}
	return e, err
}

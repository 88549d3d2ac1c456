package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"

	"github.com/farhand/farhand/registry"
)

// URIs of resources: all sessions of the scope, and each of them.
const (
	uriSessions = "farhand://sessions"
	uriSession  = uriSessions + "/" // the id follows
)

const typeJSON = "application/json"

const templateList = `"resourceTemplates":[{"uriTemplate":"` + uriSession + `{id}","name":"session",` +
	`"title":"One device","description":"One session with its tools, as GET /api/sessions/{id} has it.",` +
	`"mimeType":"` + typeJSON + `"}]`

type resource struct {
	URI         string `json:"uri"`
	Name        string `json:"name"`
	Title       string `json:"title"`
	Description string `json:"description,omitempty"`
	Type        string `json:"mimeType"`
}

// listResources lists the resources: the list of sessions, and each connected session, in the order of connecting.
func (s *Server) listResources(ctx context.Context, r *request) (result, error) {
	after, err := r.readCursor()
	if err != nil {
		return result{}, err
	}
	entries, next, err := s.sessions(ctx, r, after.session())
	if err != nil {
		return result{}, err
	}
	list := struct {
		Resources []resource `json:"resources"`
		Next      string     `json:"nextCursor,omitempty"`
	}{Resources: make([]resource, 0, len(entries)+1)}
	if after == (cursor{}) {
		list.Resources = append(list.Resources, resource{
			uriSessions, "sessions", "Connected devices", "Who is connected, as GET /api/sessions has it.", typeJSON,
		})
	}
	for i := range entries {
		at := &entries[i].Session
		list.Resources = append(list.Resources, resource{
			URI: uriSession + url.PathEscape(at.Key.Session), Name: at.Key.Session, Title: deviceName(at),
			Type: typeJSON,
		})
	}
	if next != nil {
		list.Next = cursor{Generation: next.Generation, Session: next.Session}.String()
	}
	return result{members: encode(list), private: true}, nil
}

// sessions reads a page of the sessions of the scope. A session that is away is not listed.
func (s *Server) sessions(
	ctx context.Context, r *request, after registry.Cursor,
) ([]registry.Entry, *registry.Cursor, error) {
	if r.Scope.Session != "" {
		e, err := s.session(ctx, r)
		if err != nil || e.Session.Pod == "" {
			return nil, nil, err
		}
		return []registry.Entry{e}, nil, nil
	}
	return s.cfg.Directory.List(ctx, registry.Query{
		Tenant: r.Caller.Tenant, Target: r.Scope.target(r.Caller.Viewer()), After: after, Limit: pageSessions,
	})
}

func (s *Server) listTemplates(_ context.Context, r *request) (result, error) {
	return r.constant(templateList)
}

// constant returns a list that has one page and never changes.
func (r *request) constant(members string) (result, error) {
	if v := r.params.get("cursor"); !v.IsZero() && v.String() != "null" {
		return result{}, invalidParams("This list has one page. Leave the cursor out.")
	}
	return result{members: []byte(members), private: true}, nil
}

// readResource returns the sessions of the scope, or one of them. A session outside the scope is unknown.
func (s *Server) readResource(ctx context.Context, r *request) (result, error) {
	uri, err := r.params.mustText("uri")
	if err != nil {
		return result{}, err
	}
	text, err := s.readURI(ctx, r, uri)
	if errors.Is(err, registry.CodeSessionNotFound) {
		err = unknownResource(uri)
	}
	if err != nil {
		return result{}, err
	}
	type content struct {
		URI  string `json:"uri"`
		Type string `json:"mimeType"`
		Text string `json:"text"`
	}
	return result{private: true, members: encode(struct {
		Contents []content `json:"contents"`
	}{[]content{{uri, typeJSON, string(text)}}})}, nil
}

func (s *Server) readURI(ctx context.Context, r *request, uri string) (json.RawMessage, error) {
	escaped, single := strings.CutPrefix(uri, uriSession)
	id, err := url.PathUnescape(escaped)
	switch {
	case uri == uriSessions:
		return s.cfg.Gateway.Sessions(ctx, r.asker(), r.Scope)
	case !single || err != nil || r.Scope.Session != "" && r.Scope.Session != id:
		return nil, unknownResource(uri)
	default:
		return s.cfg.Gateway.Session(ctx, r.asker(), r.Scope, id)
	}
}

func unknownResource(uri string) error {
	return &rpcError{
		code: codeInvalidParams, message: "This resource does not exist.", data: map[string]string{"uri": uri},
	}
}

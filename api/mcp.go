package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/api/mcp"
	"github.com/farhand/farhand/registry"
)

// Paths of MCP. All of them are one endpoint; the longer ones see less.
const (
	pathMCP        = "/mcp"
	pathMCPUser    = pathMCP + "/users/:id"
	pathMCPSession = pathMCP + "/sessions/:id"
)

// isMCP reports whether a path is one whose clients expect answers of JSON-RPC.
func isMCP(path string) bool { return path == pathMCP || strings.HasPrefix(path, pathMCP+"/") }

// mcpRoutes are the routes of MCP.
func (h *handler) mcpRoutes() []route {
	var table []route
	for path, scope := range map[string]func(id string) mcp.Scope{
		pathMCP:        func(string) mcp.Scope { return mcp.Scope{} },
		pathMCPUser:    func(id string) mcp.Scope { return mcp.Scope{User: id} },
		pathMCPSession: func(id string) mcp.Scope { return mcp.Scope{Session: id} },
	} {
		table = append(table, route{http.MethodPost, path, callers, []string{"tools"}, h.mcpOf(scope)})
	}
	return table
}

// mcpOf serves MCP for what the path names.
func (h *handler) mcpOf(scope func(id string) mcp.Scope) handlerFunc {
	return func(c *gin.Context, q params) error {
		began := time.Now()
		s := scope(c.Param("id"))
		tools, err := q.oneOf("tools", "search")
		if err != nil {
			return err
		}
		s.Search = tools != ""
		body, err := h.readBody(c)
		if err != nil {
			return err
		}
		return h.mcp.Serve(c.Request.Context(), &mcp.Exchange{
			Caller: caller(c), Scope: s, Origin: h.Resource.reached(c.Request), Header: c.Request.Header, Body: body,
			TakeBody: func() func() { return takeBody(c) },
			Out:      mcpOut{h, c, h.owner(c), c.Request.Context(), began},
		})
	}
}

// mcpGateway lends package mcp what the routes below /api/ answer with. It implements
// mcp.Gateway and mcp.Changer.
type mcpGateway struct{ h *handler }

// Digest implements mcp.Gateway.
func (g mcpGateway) Digest() string { return g.h.Policy.Digest() + g.h.own().digest }

// LocalTools implements mcp.Gateway.
func (g mcpGateway) LocalTools() []registry.ToolSpec { return g.h.own().specs() }

// Decide implements mcp.Gateway.
func (g mcpGateway) Decide(by agent.Asker, t registry.ToolSpec, from policy.Source) *policy.Decision {
	if from == policy.Remote {
		return g.h.mayCall(by, t, nil)
	}
	return g.h.mayCall(by, t, g.h.running().named(t.Name)) // or of an MCP server: whoever asks does not tell them apart
}

// Owns implements mcp.Gateway.
func (g mcpGateway) Owns(name string) bool {
	live, ok := g.h.Builtins.(agent.LiveTools)
	return ok && live.Owns(name)
}

// Sessions implements mcp.Gateway.
func (g mcpGateway) Sessions(ctx context.Context, by agent.Asker, s mcp.Scope) (json.RawMessage, error) {
	if s.Session != "" {
		row, err := g.h.sessionRow(ctx, by, registry.Key{Tenant: by.Who.Tenant, Session: s.Session})
		if err != nil {
			return nil, err
		}
		return encode(struct {
			Sessions []sessionRow `json:"sessions"`
		}{[]sessionRow{row}})
	}
	q := params{"connected": {"true"}}
	if s.User != "" {
		q["user_id"] = []string{s.User}
	}
	page, err := g.h.sessionPage(ctx, by, q)
	if err != nil {
		return nil, err
	}
	return encode(page)
}

// Session implements mcp.Gateway.
func (g mcpGateway) Session(ctx context.Context, by agent.Asker, s mcp.Scope, id string) (json.RawMessage, error) {
	row, err := g.h.sessionRow(ctx, by, registry.Key{Tenant: by.Who.Tenant, Session: id})
	switch {
	case errors.Is(err, registry.CodeNotConnected), err == nil && s.User != "" && row.UserID != s.User:
		return nil, registry.UnknownSession()
	case err != nil:
		return nil, err
	}
	return encode(row)
}

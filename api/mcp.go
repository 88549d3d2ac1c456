package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/api/internal/ssewriter"
	"github.com/farhand/farhand/api/mcp"
	"github.com/farhand/farhand/internal/share"
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

// pathResource is where clients of the MCP endpoint are told where to get a token (RFC 9728).
const pathResource = "/.well-known/oauth-protected-resource"

// Resource is what clients of the MCP are told to get a token by: the gateway is a protected resource in the words of
// OAuth. They are told nothing without an authorization server.
type Resource struct {
	URL    string   // of the gateway as clients reach it, without a path; empty: only those of this machine are told
	Issuer string   // the authorization server; empty: there is none
	Scopes []string // that a token needs; none: the authorization server knows
}

// origin returns the URL of the gateway without a path, as the client of a request knows it. Whoever sends a request
// chooses its Host header, so that counts only where it names this machine.
func (s Resource) origin(r *http.Request) (origin string, known bool) {
	if s.Issuer == "" {
		return "", false
	}
	return s.reached(r), s.URL != "" || auth.IsLoopbackHost(r.Host)
}

// reached returns the URL of the gateway without a path: the configured one, else the one that the client of a request
// says it has reached. Who is not yet known must not be told the latter.
func (s Resource) reached(r *http.Request) string {
	switch {
	case s.URL != "":
		return s.URL
	case r.TLS != nil:
		return "https://" + r.Host
	default:
		return "http://" + r.Host
	}
}

// resourceMetadata is the document of RFC 9728.
type resourceMetadata struct {
	Resource string   `json:"resource"`
	Servers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported,omitempty"`
	Methods  []string `json:"bearer_methods_supported"`
	Name     string   `json:"resource_name"`
}

// protectedResource answers with the metadata of the gateway or, below a path of the MCP endpoint, of that one: a
// client must find there the very URL it connects to.
func (h *handler) protectedResource(c *gin.Context, _ params) error {
	origin, known := h.Resource.origin(c.Request)
	path := strings.TrimPrefix(c.Request.URL.EscapedPath(), pathResource)
	if !known || path != "" && !isMCP(path) {
		return registry.Errorf(registry.CodeNotFound, "No authorization server is known for this address. Use an "+
			"API key, or set FARHAND_PUBLIC_URL and FARHAND_JWT_ISSUER to the URLs of gateway and authorization "+
			"server.")
	}
	c.Header("Cache-Control", "no-store")
	c.JSON(http.StatusOK, resourceMetadata{
		Resource: origin + path, Servers: []string{h.Resource.Issuer}, Scopes: h.Resource.Scopes,
		Methods: []string{"header"}, Name: "Farhand",
	})
	return nil
}

// Errors of a challenge, as RFC 6750 names them.
const (
	invalidToken      = "invalid_token"
	insufficientScope = "insufficient_scope"
)

// challenge tells a client of the MCP endpoint what is wrong with its token, and where to get another. Elsewhere it
// does nothing.
func (h *handler) challenge(c *gin.Context, wrong string) {
	path := c.Request.URL.EscapedPath()
	if !isMCP(path) {
		return
	}
	var params []string
	add := func(name, value string) {
		params = append(params, name+`="`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value)+`"`)
	}
	if wrong != invalidToken || c.GetHeader("Authorization") != "" {
		add("error", wrong)
	}
	if origin, known := h.Resource.origin(c.Request); known {
		add("resource_metadata", origin+pathResource+path)
	}
	if len(h.Resource.Scopes) > 0 {
		add("scope", strings.Join(h.Resource.Scopes, " "))
	}
	c.Header("WWW-Authenticate", strings.TrimSpace("Bearer "+strings.Join(params, ", ")))
}

// refuseQueryToken refuses a token in the query string of the MCP endpoint, where logs and histories would keep it.
func refuseQueryToken(r *http.Request) error {
	if !isMCP(r.URL.Path) || r.URL.RawQuery == "" {
		return nil
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err == nil && !query.Has("token") && !query.Has("access_token") {
		return nil
	}
	return registry.Errorf(registry.CodeInvalidRequest,
		"A token does not belong into the URL. Send it in the header Authorization: Bearer …, and revoke this one.")
}

// mcpChanges hears of changes from the feed of a tenant, which the pod reads once for all streams that follow it. It
// implements mcp.Changes.
type mcpChanges struct {
	reader *feedReader
	at     int64 // the place of the next entry
	viewer string
	scope  mcp.Scope
}

// Follow implements mcp.Changer.
func (g mcpGateway) Follow(
	ctx context.Context, who auth.Identity, scope mcp.Scope,
) (_ mcp.Changes, leave func(), err error) {
	reader, leave := g.h.hub.follow(who.Tenant)
	for {
		at, started, grown := reader.end()
		if started {
			return &mcpChanges{reader, at, who.Viewer(), scope}, leave, nil
		}
		await(ctx, grown, storeTimeout)
		if _, started, _ := reader.end(); !started {
			leave()
			return nil, nil, registry.StoreUnavailable("read the end of the feed", ctx.Err())
		}
	}
}

// end returns the place behind the newest entry. started is false as long as the reader has not begun; grown is closed
// when it has.
func (r *feedReader) end() (at int64, started bool, grown <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped + int64(len(r.kept)), r.started, r.grown
}

// Wait implements mcp.Changes.
func (m *mcpChanges) Wait(ctx context.Context, atMost time.Duration) (changed bool) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	for ctx.Err() == nil {
		entries, ok, grown := m.reader.from(m.at, feedWrite)
		if !ok { // entries have been dropped that nobody has looked at
			m.at, _, _ = m.reader.end()
			return true
		}
		for _, e := range entries {
			m.at++
			changed = changed || m.means(e)
		}
		if changed {
			return true
		}
		if len(entries) == 0 {
			await(ctx, grown, atMost)
		}
	}
	return false
}

// means reports whether an entry says that something in the scope may have changed.
func (m *mcpChanges) means(e feedEntry) bool {
	switch e.kind {
	case registry.ActivityPodDied: // its sessions leave without a word
		return true
	case registry.ActivityConnected, registry.ActivityUpdated, registry.ActivityDisconnected, registry.ActivityTools:
	default:
		return false
	}
	return e.owner.SeenBy(m.viewer) && (m.scope.Session == "" || m.scope.Session == e.session) &&
		(m.scope.User == "" || m.scope.User == e.owner.User)
}

// mcpOut is where the answer to a POST of MCP goes. It implements mcp.Out.
type mcpOut struct {
	h  *handler
	c  *gin.Context
	by share.Owner

	// request is the context of the request. Ended may be asked when c serves another one already.
	request context.Context
	began   time.Time
}

// Write implements mcp.Out.
func (o mcpOut) Write(status int, body []byte, failure *registry.Error) error {
	o.NoteFailure(failure)
	answerInTime(o.c, o.began)
	if body == nil {
		o.c.Status(status)
		o.c.Writer.WriteHeaderNow()
		return nil
	}
	o.c.Header("Cache-Control", "no-store")
	return o.h.writeBody(o.c, status, body)
}

// NoteCall implements mcp.Out.
func (o mcpOut) NoteCall(id string) { noteCall(o.c, id) }

// NoteFailure implements mcp.Out.
func (o mcpOut) NoteFailure(failure *registry.Error) {
	if failure == nil {
		return
	}
	if why := interrupted(o.request, failure); why != nil {
		failure = why
	}
	noted := *failure
	noted.Code = auth.ProblemOf(failure).Code // one that clients may see
	o.c.Set(keyFailure, &noted)
}

// NameSession implements mcp.Out.
func (o mcpOut) NameSession(name string) { o.c.Header("Mcp-Session-Id", name) }

// ReservePage implements mcp.Out.
func (o mcpOut) ReservePage(ctx context.Context) error { return o.h.reserveAnswer(ctx, o.c, pageCost) }

// Open implements mcp.Out.
func (o mcpOut) Open() (*ssewriter.Stream, error) { return ssewriter.Open(o.c) }

// Reserve implements mcp.Out.
func (o mcpOut) Reserve(ctx context.Context, s *ssewriter.Stream, n int) (release func(), err error) {
	if n <= smallResponse {
		return func() {}, nil
	}
	held, err := o.h.responses.reserveMade(ctx, o.by, int64(n))
	if err != nil {
		return nil, err
	}
	if !held.nextPart(s.Controller()) {
		held.release()
		return nil, errTooSlow
	}
	return held.release, nil
}

// Enter implements mcp.Out.
func (o mcpOut) Enter() (release func(), err error) { return o.h.reserveStream(o.by) }

// UntilDraining implements mcp.Out.
func (o mcpOut) UntilDraining(ctx context.Context) (context.Context, func()) {
	return o.h.untilDraining(ctx)
}

// Ended implements mcp.Out.
func (o mcpOut) Ended() bool { return endedIdentity(o.request) != nil }

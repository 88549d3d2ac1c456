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
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// Paths of MCP. All of them are one endpoint; the longer ones cover fewer devices.
const (
	pathMCP        = "/mcp"
	pathMCPUser    = pathMCP + "/users/:id"
	pathMCPSession = pathMCP + "/sessions/:id"
)

// isMCP reports whether the clients of a path expect JSON-RPC answers.
func isMCP(path string) bool { return path == pathMCP || strings.HasPrefix(path, pathMCP+"/") }

// serveMCP serves MCP for the scope that the path names.
func (h *handler) serveMCP(c *gin.Context, q *params) error {
	began := time.Now()
	s := mcp.Scope{Search: q.oneOf("tools", "search") != ""}
	switch c.FullPath() {
	case pathMCPUser:
		s.User = c.Param("id")
	case pathMCPSession:
		s.Session = c.Param("id")
	}
	if err := q.failed(); err != nil {
		return err
	}
	queue, err := h.queueHeader(c)
	if err != nil {
		return err
	}
	body, err := h.readBody(c)
	if err != nil {
		return err
	}
	return h.mcp.Serve(c.Request.Context(), &mcp.Exchange{
		Caller: caller(c), Scope: s, Queue: queue, Origin: h.Resource.reached(c.Request), Header: c.Request.Header,
		Body:     body,
		TakeBody: func() func() { return takeBody(c) },
		Out:      mcpOut{h, c, h.owner(c), c.Request.Context(), began},
	})
}

// mcpGateway gives package mcp access to the data and decisions of the routes below /api/. It implements mcp.Gateway.
type mcpGateway struct{ h *handler }

func (g mcpGateway) Digest() string { return g.h.Policy.Digest() + g.h.own().digest }

func (g mcpGateway) LocalTools() []registry.ToolSpec {
	return each(g.h.own().tools, func(t ownTool) registry.ToolSpec { return t.ToolSpec })
}

func (g mcpGateway) Decide(by agent.Asker, t registry.ToolSpec, from policy.Source) *policy.Decision {
	if from == policy.Remote {
		return g.h.mayCall(by, t, nil)
	}
	return g.h.mayCall(by, t, g.h.running().named(t.Name)) // or of an MCP server: the caller does not distinguish them
}

func (g mcpGateway) Owns(name string) bool {
	live, ok := g.h.Builtins.(agent.LiveTools)
	return ok && live.Owns(name)
}

func (g mcpGateway) Sessions(ctx context.Context, by agent.Asker, s mcp.Scope) (json.RawMessage, error) {
	if s.Session != "" {
		session, err := g.h.oneSession(ctx, by, registry.Key{Tenant: by.Who.Tenant, Session: s.Session})
		if err != nil {
			return nil, err
		}
		return encode(map[string][]wire.Session{"sessions": {session}})
	}
	q := url.Values{"connected": {"true"}}
	if s.User != "" {
		q.Set("user_id", s.User)
	}
	page, err := g.h.sessionPage(ctx, by, &params{values: q})
	if err != nil {
		return nil, err
	}
	return encode(page)
}

func (g mcpGateway) Session(ctx context.Context, by agent.Asker, s mcp.Scope, id string) (json.RawMessage, error) {
	row, err := g.h.oneSession(ctx, by, registry.Key{Tenant: by.Who.Tenant, Session: id})
	switch {
	case errors.Is(err, registry.CodeNotConnected), err == nil && s.User != "" && row.UserID != s.User:
		return nil, registry.UnknownSession()
	case err != nil:
		return nil, err
	}
	return encode(row)
}

func (g mcpGateway) Sleeping(
	ctx context.Context, who auth.Identity, target registry.Target, skip int, row func(registry.KnownDevice) bool,
) (next int, err error) {
	end, err := g.h.eachSleeping(ctx, who, target, cursor{Kind: cursorTools, Asleep: true, Skip: skip}, row)
	return end.Skip, err
}

// pathResource is where clients of the MCP endpoint read where to get a token (RFC 9728).
const pathResource = "/.well-known/oauth-protected-resource"

// Resource tells clients of the MCP endpoint how to get a token. In OAuth terms, the gateway is a protected resource.
// Without an authorization server, clients get no such information.
type Resource struct {
	URL    string   // of the gateway for clients, without a path; empty: only clients of this machine are served
	Issuer string   // the authorization server; empty: there is none
	Scopes []string // that a token needs; none: the authorization server decides
}

// origin returns the URL of the gateway without a path, as the client of a request knows it. The client chooses the
// Host header, so the header is used only if it names this machine.
func (s Resource) origin(r *http.Request) (origin string, known bool) {
	if s.Issuer == "" {
		return "", false
	}
	return s.reached(r), s.URL != "" || auth.IsLoopbackHost(r.Host)
}

// reached returns the URL of the gateway without a path: the configured URL, otherwise that of the client's request. Do
// not send the latter to a client that is not authenticated.
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

// protectedResource returns the metadata of the gateway or, for a path of the MCP endpoint, of that path. The client
// must find exactly the URL that it connects to.
func (h *handler) protectedResource(c *gin.Context, _ *params) error {
	origin, known := h.Resource.origin(c.Request)
	path := strings.TrimPrefix(c.Request.URL.EscapedPath(), pathResource)
	if !known || path != "" && !isMCP(path) {
		return registry.Errorf(registry.CodeNotFound, "No authorization server is known for this address. Use an "+
			"API key, or set FARHAND_PUBLIC_URL and FARHAND_JWT_ISSUER to the URLs of gateway and authorization "+
			"server.")
	}
	c.Header("Cache-Control", "no-store")
	c.JSON(http.StatusOK, wire.ProtectedResource{
		Resource: origin + path, Servers: []string{h.Resource.Issuer}, Scopes: h.Resource.Scopes,
		Methods: []string{"header"}, Name: "Farhand",
	})
	return nil
}

// Errors of a challenge, with the names of RFC 6750.
const (
	invalidToken      = "invalid_token"
	insufficientScope = "insufficient_scope"
)

// challenge sets the header that tells an MCP client why its token is invalid, and where to get another. It does
// nothing on other paths.
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

// refuseQueryToken rejects a token in the query string of the MCP endpoint: logs and histories would store it.
func refuseQueryToken(r *http.Request) error {
	if !isMCP(r.URL.Path) || r.URL.RawQuery == "" {
		return nil
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err == nil && !query.Has("token") && !query.Has("access_token") {
		return nil
	}
	return registry.Errorf(registry.CodeInvalidRequest,
		"Tokens are not accepted in the URL. Send a token in the header Authorization: Bearer …, and revoke this one.")
}

// mcpChanges finds changes in the feed of a tenant. The pod reads the feed once for all streams that follow it. It
// implements mcp.Changes.
type mcpChanges struct {
	reader *feedReader
	at     int64 // position of the next entry
	viewer string
	scope  mcp.Scope
}

func (g mcpGateway) Follow(
	ctx context.Context, who auth.Identity, scope mcp.Scope,
) (_ mcp.Changes, leave func(), err error) {
	reader, leave := g.h.hub.follow(who.Tenant)
	at, started, grown := reader.end()
	if !started {
		await(ctx, grown, storeTimeout)
		at, started, _ = reader.end()
	}
	if !started {
		leave()
		return nil, nil, registry.StoreUnavailable("read the end of the feed", ctx.Err())
	}
	return &mcpChanges{reader, at, who.Viewer(), scope}, leave, nil
}

// end returns the position behind the newest entry. started is false until the reader has begun. grown is closed when
// it begins or reads more.
func (r *feedReader) end() (at int64, started bool, grown <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped + int64(len(r.kept)), r.started, r.grown
}

func (m *mcpChanges) Wait(ctx context.Context, atMost time.Duration) (changed bool) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	for ctx.Err() == nil {
		entries, ok, grown := m.reader.from(m.at, feedWrite)
		if !ok { // entries were dropped before this stream read them
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

func (m *mcpChanges) means(e feedEntry) bool {
	switch e.kind {
	case registry.ActivityPodDied: // its sessions end without entries of their own
		return true
	case registry.ActivityConnected, registry.ActivityUpdated, registry.ActivityDisconnected, registry.ActivityTools:
	default:
		return false
	}
	return e.owner.SeenBy(m.viewer) && (m.scope.Session == "" || m.scope.Session == e.session) &&
		(m.scope.User == "" || m.scope.User == e.owner.User)
}

// mcpOut writes the answer to a POST of MCP. It implements mcp.Out.
type mcpOut struct {
	h  *handler
	c  *gin.Context
	by share.Owner

	// request is the context of the request. Ended may be called when c already serves another request.
	request context.Context
	began   time.Time
}

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

func (o mcpOut) NoteCall(id string) { noteCall(o.c, id) }

func (o mcpOut) NoteFailure(failure *registry.Error) {
	if failure == nil {
		return
	}
	if why := interrupted(o.request, failure); why != nil {
		failure = why
	}
	noteFailure(o.c, *failure)
}

func (o mcpOut) NameSession(name string) { o.c.Header("Mcp-Session-Id", name) }

func (o mcpOut) ReservePage(ctx context.Context) error { return o.h.reserveAnswer(ctx, o.c, pageCost) }

func (o mcpOut) Open() (*ssewriter.Stream, error) { return ssewriter.Open(o.c) }

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

func (o mcpOut) Enter() (release func(), err error) { return o.h.reserveStream(o.by) }

func (o mcpOut) UntilDraining(ctx context.Context) (context.Context, func()) {
	return o.h.untilDraining(ctx)
}

func (o mcpOut) Ended() bool { return endedIdentity(o.request) != nil }

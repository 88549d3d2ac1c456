// Package api is the HTTP API of the gateway. It decodes and authenticates requests, calls agent.Invoker, chat.Agent or
// the directory, and encodes answers. It makes no decisions itself.
//
//	request ─▶ pod header, log, recovery ─▶ origin ─▶ bearer token ─▶ route ─▶ strict reading ─▶ operation
//
// Start with handler.routes below, which lists every route. agent/access/auth has every error code with its status.
// openapi/ describes both to clients. v1.go routes /v1 to package api/openai, which speaks OpenAI's formats.
//
// The package imports agent and registry, and neither ws nor a store.
package api

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api/mcp"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// handler has the state of the routes. It is safe for concurrent use.
type handler struct {
	Config
	document        func() ([]byte, error)   // returns the OpenAPI document
	namesUsers      bool                     // whether credentials can name users
	builtins        builtins                 // the static ones
	lastBuiltins    atomic.Pointer[builtins] // all of them, as last listed
	compressors     sync.Pool                // *gzip.Writer
	answers         sync.Pool                // *[]byte, for answers to calls
	served          *slots                   // requests with a credential
	streams         *slots
	waiting         *slots
	exports         *slots
	hub             *feedHub
	catchingUp      *slots // streams that read a feed themselves
	reading         *slots // requests that read a large part of the store
	responses       *byteBudget
	bodies          *byteBudget
	access          *accessLog
	mcp             *mcp.Server
	pairPolls       *auth.Buckets[netip.Prefix]
	uploads         *transfers
	downloads       *transfers
	changes         *auth.Buckets[string]      // of paired devices, by tenant
	keyChanges      *auth.Buckets[string]      // of keys, and revocations, by tenant
	wakeChanges     *auth.Buckets[share.Owner] // how devices are woken, by identity
	tenantWakes     *auth.Buckets[string]      // the same, by tenant
	deviceRotations *auth.Buckets[string]      // that devices ask for, by credential
	tenantRotations *auth.Buckets[string]      // the same, by tenant
	erasing         *share.Pool                // erasures of persons
	sampled         *auth.Buckets[string]      // traces that callers have marked as sampled, by tenant
	diagnosing      sync.Mutex                 // held while this pod is checked
	backingUp       sync.Mutex                 // held while the state file is sent

	podHeader, nosniff, json []string // values of headers; shared by all answers
}

// NewHandler returns the whole HTTP surface of a pod. It sets write deadlines itself, so its server needs a read
// timeout but no write timeout. It switches gin to release mode for the whole process, because gin prints to standard
// output in any other mode.
func NewHandler(cfg Config) (*Handler, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	own, err := newBuiltins(cfg.Builtins)
	if err != nil {
		return nil, err
	}
	h := &handler{
		Config: cfg, builtins: own,
		document: sync.OnceValues(func() ([]byte, error) { return openAPI(cfg.Version) }),
		streams:  newSlots("event streams", cfg.MaxStreams, cfg.MaxCallerStreams), hub: newFeedHub(cfg.Calls, cfg.Log),
		served:     newSlots("requests", cfg.MaxServed, cfg.MaxServed/2),
		waiting:    newSlots("requests that wait for a call", maxWaiting, maxCallerWaiting),
		exports:    newSlots("exports of the audit log", maxExports, maxCallerExports),
		catchingUp: newSlots("event streams that catch up", catchUps, 0),
		reading:    newSlots("requests that read the audit log or the usage", maxReading, 0),
		responses:  newResponses(cfg.MaxResponseBytes),
		bodies:     newBodies(cfg.MaxRequestBytes),
		pairPolls:  auth.NewBuckets[netip.Prefix](pairPolls),
		uploads:    newTransfers("uploads"), downloads: newTransfers("downloads"),
		changes:         auth.NewBuckets[string](deviceChanges),
		keyChanges:      auth.NewBuckets[string](keyChanges),
		wakeChanges:     auth.NewBuckets[share.Owner](wakeChanges),
		tenantWakes:     auth.NewBuckets[string](tenantWakes),
		sampled:         auth.NewBuckets[string](sampledTraces),
		deviceRotations: auth.NewBuckets[string](deviceRotations),
		tenantRotations: auth.NewBuckets[string](tenantRotations),
		erasing:         share.New(share.Turns(1)),
		access:          newAccessLog(cfg.AccessLog, cfg.Log),
		namesUsers:      auth.NamesUsers(cfg.Auth),
		podHeader:       []string{cfg.Pod}, nosniff: []string{"nosniff"}, json: []string{"application/json"},
	}
	h.mcp = mcp.New(mcp.Config{
		Invoker: cfg.Invoker, Directory: cfg.Directory, Gateway: mcpGateway{h}, Cancels: cfg.Turns, Calls: cfg.Calls,
		Approvals: cfg.Approvals, States: cfg.States, TaskAfter: cfg.TaskAfter, Retention: cfg.Retention,
		Version: cfg.Version, Tracer: cfg.Tracer, MayTrace: h.mayTrace,
	})
	return &Handler{newEngine(h), h}, nil
}

// Handler is the HTTP surface of a pod. It is safe for concurrent use.
type Handler struct {
	engine http.Handler
	h      *handler
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// WebSockets are notified separately that the pod is draining.
	if !h.h.isDevice(r) {
		w = &leavingWriter{w, h.h}
	}
	h.engine.ServeHTTP(w, r)
}

func newEngine(h *handler) *gin.Engine {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.HandleMethodNotAllowed = true
	engine.RedirectTrailingSlash = false // each resource has one address; any other is not_found
	engine.RedirectFixedPath = false
	_ = engine.SetTrustedProxies(nil) // cannot fail: there are none to parse
	engine.Use(h.identify, h.nameCall, h.nameRequest, h.observe, h.recover, h.limitWriting, h.checkOrigin,
		h.authenticate, h.trace)
	engine.NoRoute(h.notFound)
	engine.NoMethod(h.methodNotAllowed)
	for _, r := range slices.Concat(h.routes(), h.pageRoutes()) {
		engine.Handle(r.method, r.path, h.serve(r))
		if r.method == http.MethodGet && !h.upgrades(r.path) {
			engine.HEAD(r.path, h.serve(r))
		}
	}
	return engine
}

// Paths that other files of this package refer to.
const (
	prefixAPI          = "/api/"    // everything below needs a token; event streams may have a ticket
	prefixAssets       = "/assets/" // of the pages
	pathIndex          = "/"
	pathHealth         = "/healthz"
	pathHealthClawSeed = "/health" // for ClawSeed's apps
	pathReady          = "/readyz"
	pathMetrics        = "/metrics" // for admins
	pathDevice         = "/ws/chat"
	pathDeviceMCP      = "/ws/mcp"

	pathTools       = "/api/tools"
	pathCall        = pathTools + "/:name/call"
	pathSessionCall = "/api/sessions/:id/tools/:name/call"
	pathCalls       = "/api/calls" // POST: a group call
	pathMessages    = "/api/sessions/:id/messages"
	pathKeys        = "/api/keys"
)

// route is one line of the table below. query names the allowed parameters of its query string.
type route struct {
	method string
	path   string
	who    access
	query  []string
	handle handlerFunc
}

// handlerFunc answers a request, or returns why it failed. fail then writes the error answer.
type handlerFunc func(c *gin.Context, q *params) error

// routes returns the whole HTTP surface, and who may use each route. GET routes also answer HEAD.
func (h *handler) routes() []route {
	table := slices.Concat(h.toolRoutes(), h.peopleRoutes(), []route{
		{http.MethodPost, "/v1/chat/completions", callers, nil, h.complete},
		{http.MethodGet, "/v1/models", callers, nil, h.listModels},
		{http.MethodGet, "/v1/models/*model", callers, nil, h.getModel},
		{http.MethodGet, pathIndex, everybody, nil, h.indexOrNode},
		{http.MethodGet, pathHealth, everybody, nil, h.health},
		{http.MethodGet, pathHealthClawSeed, everybody, nil, h.health},
		{http.MethodGet, pathReady, everybody, nil, h.ready},
		{http.MethodGet, "/openapi.json", everybody, nil, h.openAPI},
		{http.MethodGet, "/sign-in", everybody, nil, h.signIn},
		{http.MethodGet, pathResource, everybody, nil, h.protectedResource},
		{http.MethodGet, pathResource + "/*path", everybody, nil, h.protectedResource},
	})
	for _, path := range []string{pathMCP, pathMCPUser, pathMCPSession} {
		table = append(table, route{http.MethodPost, path, callers, []string{"tools"}, h.serveMCP})
	}
	if h.Pairing != nil {
		table = append(table, h.pairingRoutes()...)
	}
	if h.Wakes != nil {
		table = append(table, h.wakeRoutes()...)
	}
	if h.Tenants != nil {
		table = append(table, h.tenantRoutes()...)
	}
	if h.Defaults != nil {
		table = append(table,
			route{http.MethodGet, pathDefaultDevice, callers, nil, h.getDefaultDevice},
			route{http.MethodPut, pathDefaultDevice, callers, nil,
				h.audited(registry.AuditDefaultDevice, h.setDefaultDevice)},
			route{http.MethodDelete, pathDefaultDevice, callers, nil,
				h.audited(registry.AuditDefaultDevice, h.dropDefaultDevice)})
	}
	if h.Files != nil {
		table = append(table,
			route{http.MethodPost, "/api/uploads", callers, nil, h.makeUpload},
			route{http.MethodPut, registry.PathUpload + ":slot", everybody, nil, h.uploadFile},
			route{http.MethodGet, registry.PathBlob + ":id", everybody, nil, h.readFile})
	}
	if h.Metrics != nil {
		table = append(table, route{http.MethodGet, pathMetrics, admins, nil, h.metrics})
	}
	if h.Device != nil {
		table = append(table, route{http.MethodGet, pathDevice, devices, nil, upgrades(h.Device)})
	}
	if h.DeviceMCP != nil {
		table = append(table, route{http.MethodGet, pathDeviceMCP, devices, nil, upgrades(h.DeviceMCP)})
	}
	if h.DeviceNode != nil && h.NodePath != pathIndex {
		table = append(table, route{http.MethodGet, h.NodePath, devices, nil, upgrades(h.DeviceNode)})
	}
	return table
}

// toolRoutes returns the routes of tools, sessions, conversations and calls.
func (h *handler) toolRoutes() []route {
	page := []string{"limit", "cursor"}
	filters := []string{"name", "q", "session_id", "device_id", "user_id", "label", "source_type", "tag", "level",
		"annotation"}
	tools, toolsAs := slices.Concat(filters, page), slices.Concat(filters, []string{"view", "format", "presence"}, page)
	sessions := []string{"device_id", "user_id", "label", "tool", "connected", "presence", "limit", "cursor"}
	calls := []string{
		"tool", "session_id", "device_id", "user", "parent", "pod", "state", "from", "to", "limit", "cursor",
	}
	return []route{
		{http.MethodGet, pathTools, callers, toolsAs, h.listToolsByQuery},
		{http.MethodGet, pathTools + "/grouped", callers, tools, h.listTools(formGrouped)},
		{http.MethodGet, pathTools + "/openai", callers, tools, h.listTools(formOpenAI)},
		{http.MethodGet, pathTools + "/anthropic", callers, tools, h.listTools(formAnthropic)},
		{http.MethodGet, pathTools + "/mcp", callers, tools, h.listTools(formMCP)},
		{http.MethodPost, pathCall, callers, nil, h.callTool},
		{http.MethodGet, "/api/sessions", callers, sessions, h.listSessions},
		{http.MethodGet, "/api/sessions/:id", callers, nil, h.getSession},
		{http.MethodPut, "/api/sessions/:id", callers, nil, h.audited(registry.AuditSessionRename, h.renameSession)},
		{http.MethodDelete, "/api/sessions/:id", callers, nil, h.audited(registry.AuditSessionKick, h.deleteSession)},
		{http.MethodGet, "/api/sessions/running", callers, []string{"cursor"}, h.runningSessions},
		{http.MethodGet, "/api/sessions/:id/state", callers, nil, h.sessionState},
		{http.MethodPost, "/api/sessions/:id/abort", callers, nil, h.audited(registry.AuditTurnAbort, h.abortSession)},
		{http.MethodPost, pathSessionCall, callers, nil, h.callTool},
		{http.MethodGet, pathMessages, callers, []string{"limit"}, h.reserving(transcriptCost, h.getMessages)},
		{http.MethodPost, pathMessages, callers, nil, h.postMessage},
		{http.MethodPost, pathCalls, callers, nil, h.callDevices},
		{http.MethodGet, pathCalls, callers, calls, h.reserving(pageCost, h.listCalls)},
		{http.MethodGet, pathCalls + "/:id", callers, []string{"wait_ms"}, h.getCall},
		{http.MethodDelete, pathCalls + "/:id", callers, nil, h.audited(registry.AuditCallCancel, h.cancelCall)},
		{http.MethodGet, "/api/devices/:id/queue", callers, nil, h.reserving(pageCost, h.listQueue)},
		{http.MethodGet, pathCalls + "/:id/events", callers, []string{"last_event_id", ticketQuery}, h.callEvents},
	}
}

// peopleRoutes returns the routes of approvers and admins, and those that people read: events, limits and usage.
func (h *handler) peopleRoutes() []route {
	usage := []string{"from", "to", "user", "tool", "by", "limit", "cursor"}
	audit := []string{
		"from", "to", "user", "credential", "action", "outcome", "tool", "session_id", "call_id", "format", "limit",
		"cursor",
	}
	return []route{
		{http.MethodGet, "/api/approvals", approvers, nil, h.listApprovals},
		{http.MethodGet, "/api/approvals/:id", approvers, []string{"wait_ms"}, h.getApproval},
		{http.MethodPost, "/api/approvals/:id", approvers, nil, h.decideApproval},
		{http.MethodGet, "/api/grants", approvers, nil, h.listGrants},
		{http.MethodDelete, "/api/grants/:id", approvers, nil, h.revokeGrant},
		{http.MethodGet, "/api/events", callers | approvers, []string{"type", "last_event_id", ticketQuery},
			h.events},
		{http.MethodPost, pathTickets, callers | approvers, nil, h.makeTicket},
		{http.MethodGet, pathKeys, admins, []string{"user_id", "limit", "cursor"}, h.listKeys},
		{http.MethodPost, pathKeys, admins, nil, h.audited(registry.AuditKeyCreate, h.createKey)},
		{http.MethodPost, pathKeys + "/:id/rotate", admins, nil, h.audited(registry.AuditKeyRotate, h.rotateKey)},
		{http.MethodDelete, pathKeys + "/:id", admins, nil, h.audited(registry.AuditKeyRevoke, h.revokeKey)},
		{http.MethodDelete, "/api/users/:id", admins, nil, h.audited(registry.AuditUserErase, h.eraseUser)},
		{http.MethodPost, "/api/revocations", admins, nil, h.audited(registry.AuditRevoke, h.revoke)},
		{http.MethodGet, "/api/limits", callers | approvers, nil, h.limits},
		{http.MethodGet, "/api/me", callers | approvers, nil, h.me},
		{http.MethodGet, "/api/usage", callers, usage, h.reserving(pageCost, h.readUsage)},
		{http.MethodGet, "/api/audit", admins, audit, h.readAudit},
		{http.MethodGet, "/api/policy", admins, nil, h.getPolicy},
		{http.MethodPost, "/api/policy/explain", admins, nil, h.explainPolicy},
		{http.MethodGet, "/api/pods", admins, nil, h.listPods},
		{http.MethodGet, "/api/doctor", admins, nil, h.audited(registry.AuditDoctor, h.diagnose)},
		{http.MethodGet, "/api/backup", admins, nil, h.audited(registry.AuditBackup, h.backUp)},
	}
}

// pageRoutes returns the routes of the pages for people. They are not part of the API.
func (h *handler) pageRoutes() (table []route) {
	if h.Pages == nil {
		return nil
	}
	for _, path := range h.Pages.Paths() {
		table = append(table, route{http.MethodGet, path, everybody, nil, h.page})
	}
	return table
}

func (h *handler) page(c *gin.Context, _ *params) error {
	if !h.Pages.Serve(c.Writer, c.Request) {
		h.notFound(c)
	}
	return nil
}

// serve parses the query string of an API route strictly before its handler runs: a mistyped filter must not silently
// list everything. OpenAI's clients add parameters of their own, which are ignored.
func (h *handler) serve(r route) gin.HandlerFunc {
	strict := strings.HasPrefix(r.path, prefixAPI) || isMCP(r.path)
	return func(c *gin.Context) {
		defer releaseAll(c)
		var q *params
		var err error
		device := h.isDevice(c.Request)
		if !device { // whose handler authenticates the device itself
			err = h.authorize(c, r.who)
		}
		if err == nil && strict {
			q, err = parseQuery(c.Request.URL.RawQuery, r.query)
		}
		if err == nil && !device && !awaitsBody(c.Request) {
			err = h.countServed(c)
		}
		if err == nil {
			err = r.handle(c, q)
		}
		if err != nil {
			h.fail(c, err)
		}
	}
}

// awaitsBody reports whether the handler reads a body that is still to come. Handlers of GET, HEAD and DELETE read
// none.
func awaitsBody(r *http.Request) bool {
	return r.ContentLength != 0 && r.Method != http.MethodGet && r.Method != http.MethodHead &&
		r.Method != http.MethodDelete
}

// upgrades reports whether a path is only for WebSockets of devices, which the handlers authenticate themselves.
func (h *handler) upgrades(path string) bool {
	return path == pathDevice || path == pathDeviceMCP || h.DeviceNode != nil && path == h.NodePath && path != pathIndex
}

// isDevice reports whether a request is one for a device's WebSocket.
func (h *handler) isDevice(r *http.Request) bool {
	return h.upgrades(r.URL.Path) ||
		h.DeviceNode != nil && h.NodePath == pathIndex && r.URL.Path == pathIndex && isUpgrade(r)
}

// isUpgrade reports whether a request asks for a WebSocket.
func isUpgrade(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// indexOrNode serves the address that OpenClaw's apps know, host and port, if it is also the address of nodes.
func (h *handler) indexOrNode(c *gin.Context, q *params) error {
	if h.isDevice(c.Request) {
		return upgrades(h.DeviceNode)(c, q)
	}
	return h.index(c, q)
}

func upgrades(device http.Handler) handlerFunc {
	return func(c *gin.Context, _ *params) error {
		device.ServeHTTP(c.Writer, c.Request)
		return nil
	}
}

func (h *handler) notFound(c *gin.Context) {
	h.fail(c, registry.Errorf(registry.CodeNotFound,
		"This path does not exist. GET /openapi.json lists all paths."))
}

func (h *handler) methodNotAllowed(c *gin.Context) {
	h.fail(c, registry.Errorf(registry.CodeMethodNotAllowed,
		"This path does not accept %s; it accepts %s.", c.Request.Method, c.Writer.Header().Get("Allow")))
}

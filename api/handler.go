package api

import (
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api/mcp"
)

// handler has what the routes need. It is safe for concurrent use.
type handler struct {
	Config
	document     func() ([]byte, error)   // returns the OpenAPI document
	namesUsers   bool                     // whether credentials may name users
	builtins     builtins                 // those that stay
	lastBuiltins atomic.Pointer[builtins] // all of them, as they were last listed
	zip          gzipPool
	answers      sync.Pool // *[]byte, of answers to calls
	served       *slots    // requests with a credential
	streams      *slots
	waiting      *slots
	exports      *slots
	hub          *feedHub
	catchingUp   *slots // streams that read a feed for themselves
	reading      *slots // requests that read much of the store
	responses    *byteBudget
	bodies       *byteBudget
	access       *accessLog
	mcp          *mcp.Server
	pairPolls    *auth.Buckets[netip.Prefix]
	uploads      *transfers
	downloads    *transfers
	changes      *auth.Buckets[string] // of paired devices, by tenant
	keyChanges   *auth.Buckets[string] // of keys, and revocations, by tenant

	podHeader, nosniff, json []string // values of headers; shared by all answers
}

// NewHandler returns the whole HTTP surface of a pod. It sets deadlines for writing itself, so that its server needs
// a read timeout but no write timeout. It switches gin to release mode, which is a setting of the whole process: in
// any other mode gin prints to standard output.
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
		changes:    auth.NewBuckets[string](deviceChanges),
		keyChanges: auth.NewBuckets[string](keyChanges),
		access:     newAccessLog(cfg.AccessLog, cfg.Log),
		namesUsers: auth.NamesUsers(cfg.Auth),
		podHeader:  []string{cfg.Pod}, nosniff: []string{"nosniff"}, json: []string{"application/json"},
	}
	h.mcp = mcp.New(mcp.Config{
		Invoker: cfg.Invoker, Directory: cfg.Directory, Gateway: mcpGateway{h}, Changes: mcpGateway{h},
		Cancels: cfg.Turns,
		Calls:   cfg.Calls, Version: cfg.Version,
		Records: cfg.Calls, Approvals: cfg.Approvals, States: cfg.States, TaskAfter: cfg.TaskAfter,
		Retention: cfg.Retention,
	})
	engine, err := newEngine(h)
	if err != nil {
		return nil, err
	}
	return &Handler{engine, h}, nil
}

// Handler is the HTTP surface of a pod. It is safe for concurrent use.
type Handler struct {
	engine http.Handler
	h      *handler
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// A socket has its own way to be told that the pod stops.
	if r.URL.Path != pathDevice && r.URL.Path != pathDeviceMCP {
		w = &leavingWriter{w, h.h}
	}
	h.engine.ServeHTTP(w, r)
}

func newEngine(h *handler) (*gin.Engine, error) {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.HandleMethodNotAllowed = true
	engine.RedirectTrailingSlash = false // each thing has one address; every other one is not_found
	engine.RedirectFixedPath = false
	if err := engine.SetTrustedProxies(nil); err != nil {
		return nil, err
	}
	engine.Use(h.identify, h.nameCall, h.nameRequest, h.observe, h.recover, h.limitWriting, h.checkOrigin,
		h.authenticate)
	engine.NoRoute(h.notFound)
	engine.NoMethod(h.methodNotAllowed)
	for _, r := range h.routes() {
		if err := r.who.validate(); err != nil {
			return nil, fmt.Errorf("api: %s %s: %w", r.method, r.path, err)
		}
		engine.Handle(r.method, r.path, h.serve(r))
		if r.method == http.MethodGet && !r.upgrades() {
			engine.HEAD(r.path, h.serve(r))
		}
	}
	return engine, nil
}

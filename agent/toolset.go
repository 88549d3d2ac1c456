package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/registry"
)

const (
	maxOtherSessions = 50        // of the same user, whose tools are included
	maxOtherPages    = 10        // directory pages to read for them; a page may be partly filled
	maxToolsListed   = 1 << 10   // bytes of the names of tools that an error lists
	maxAskedName     = 64        // bytes kept of the name of a tool that does not exist
	hashSeparator    = "__"      // between the name of a tool and the hash that makes it unique
	sourceRemote     = "remote:" // followed by the session
)

// SessionDirectory is the part of registry.Directory that tool sets use.
type SessionDirectory interface {
	Entry(ctx context.Context, key registry.Key) (registry.Entry, error)
	List(ctx context.Context, q registry.Query) ([]registry.Entry, *registry.Cursor, error)
	Awaited(ctx context.Context, q registry.Query) ([]registry.Awaited, error)
}

// ToolSetsConfig configures ToolSets. Invoker, Directory and Policy are required.
type ToolSetsConfig struct {
	Invoker    *Invoker
	Directory  SessionDirectory
	Policy     *Policy
	LocalTools *LocalTools           // nil: none
	Devices    registry.KnownDevices // those that sleep; nil: none

	// OtherSessions lets a conversation with one trusted person (ContextMain) also use the tools of the same user's
	// other sessions. The user is named by the caller's credentials, or else by the device.
	OtherSessions bool

	// Approvals is set if approvals can be asked for. Otherwise models do not see tools of which every call needs
	// approval.
	Approvals bool

	Log *slog.Logger // default: discard
}

// ToolSets opens the set of tools that each turn may call. It is safe for concurrent use.
type ToolSets struct{ cfg ToolSetsConfig }

// NewToolSets returns ToolSets.
func NewToolSets(cfg ToolSetsConfig) *ToolSets {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &ToolSets{cfg: cfg}
}

// ToolSet holds the tools that one turn may call: local, live, and of its device. It is safe for concurrent use.
type ToolSet struct {
	cfg     ToolSetsConfig
	sc      SessionContext
	local   []Tool       // by name
	history *CallHistory // of a stateless session

	mu     sync.Mutex
	listed map[string]boundTool // by the name that the model last saw
}

// boundTool is a tool as the model saw it, and where it runs.
type boundTool struct {
	ShownTool
	local   Tool // nil for a remote tool
	session string
}

// ShownTool is one tool of a ToolSet.
type ShownTool struct {
	ModelName string            // unique in the set, and accepted by every model: ^[A-Za-z0-9_-]{1,64}$
	Spec      registry.ToolSpec // with its name at the source
	Source    string            // registry.SourceLocal, "mcp:" and the server, or "remote:" and the session
}

// Open makes the local tools of a turn. The tenant is always the caller's, whatever sc.Key says.
func (s *ToolSets) Open(sc SessionContext) *ToolSet {
	sc.Key.Tenant = sc.Caller.Tenant
	set := &ToolSet{cfg: s.cfg, sc: sc}
	if sc.Stateless {
		set.history = new(CallHistory)
	}
	if s.cfg.LocalTools == nil {
		return set
	}
	tools, err := s.cfg.LocalTools.For(sc)
	if err != nil {
		s.cfg.Log.Warn("factories did not return all announced tools",
			"tenant", sc.Key.Tenant, "session", sc.Key.Session, "error", err)
	}
	set.local = slices.DeleteFunc(tools, func(t Tool) bool { return !set.allows(t.Spec(), t) })
	return set
}

// allows reports whether the model may see, and so call, a tool. local is nil for a device's tool.
func (s *ToolSet) allows(spec registry.ToolSpec, local Tool) bool {
	d := MayCall(s.cfg.Policy, Asker{Who: s.sc.Caller, Context: s.sc.Kind, Model: true, Waits: true}, spec, local)
	return d.Allowed && (s.cfg.Approvals || d.Approval(0) == nil)
}

// Tools returns the tools that may be called now: local tools, tools of the own session, then tools of other sessions,
// each sorted by name. It reads them again on every call, so tools come and go with their devices. While the own device
// is expected back, its tools stay listed, and their calls wait for it. Otherwise a disconnected device has no tools.
// Devices of another user than the caller are skipped. A store that cannot be read is an error.
func (s *ToolSet) Tools(ctx context.Context) ([]ShownTool, error) {
	tools, err := s.current(ctx)
	if err != nil {
		return nil, err
	}
	shown, list := make(map[string]boundTool, len(tools)), make([]ShownTool, len(tools))
	for i, t := range tools {
		shown[t.ModelName], list[i] = t, t.ShownTool
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed = shown
	return list, nil
}

// InvokeRequest is a call from a model.
type InvokeRequest struct {
	CallID    string // default: a new one
	ModelName string // as the model saw it
	Args      registry.JSON
	Turn      string
	Repeats   bool // as of Request

	Provenance *Provenance // of the arguments; nil: unknown

	OnApproval func(registry.Approval) // as of Request
}

// Invoke calls the tool that a model names. A name means what it meant at the last call of Tools, so a tool that
// appeared since is never mistaken for another. The call itself finds out whether the tool is still there. A name that
// Tools did not return fails with registry.CodeToolNotFound and a list of the current tools. It still passes through
// the hooks and gets a record.
func (s *ToolSet) Invoke(ctx context.Context, r InvokeRequest) (Outcome, error) {
	req := Request{
		CallID: r.CallID, Caller: s.sc.Caller, Args: r.Args, Turn: r.Turn, history: s.history, Endpoint: EndpointChat,
		Model: true, Context: s.sc.Kind, Provenance: r.Provenance, OnApproval: r.OnApproval,
		Repeats: r.Repeats,
	}
	if s.sc.Stateless {
		req.Endpoint = EndpointV1
	}
	// Without a session there is no conversation to keep state for.
	if s.sc.Key.Session != "" && !s.sc.Stateless {
		req.Conversation = s.sc.Key
	}
	t, err := s.lookUp(ctx, r.ModelName)
	if err != nil {
		req.Tool, req.refused = askedName(r.ModelName), err
	} else {
		req.Tool, req.Local, req.Target.SessionID = t.Spec.Name, t.local, t.session
		req.session = s.sc
		if t.local == nil {
			req.Queue = s.sc.Queue
		}
	}
	return s.cfg.Invoker.Invoke(ctx, req)
}

// lookUp returns the tool of a name. It checks whether a name that Tools did not return has appeared since.
func (s *ToolSet) lookUp(ctx context.Context, name string) (boundTool, error) {
	s.mu.Lock()
	t, known := s.listed[name]
	s.mu.Unlock()
	if known {
		return t, nil
	}
	t, names, err := s.find(ctx, name)
	if all := s.cfg.LocalTools; names != nil && all != nil && all.Owns(name) { // it may appear shortly
		if err := all.Await(ctx, name, time.Now().Add(s.cfg.Invoker.cfg.Timeout)); err != nil {
			return boundTool{}, err
		}
		t, names, err = s.find(ctx, name)
	}
	if err == nil && names != nil {
		err = unknownTool(name, names)
	}
	return t, err
}

// find returns the tool of a name that can be called now. If there is none, the other names are not nil.
func (s *ToolSet) find(ctx context.Context, name string) (t boundTool, others []string, err error) {
	tools, err := s.current(ctx)
	if err != nil {
		return boundTool{}, nil, err
	}
	others = make([]string, len(tools))
	for i, t := range tools {
		if others[i] = t.ModelName; others[i] == name {
			return t, nil, nil
		}
	}
	return boundTool{}, others, nil
}

func askedName(name string) string {
	return strings.ToValidUTF8(name[:min(len(name), maxAskedName)], "")
}

// unknownTool returns the error for a model, with as many current tool names as fit.
func unknownTool(name string, names []string) error {
	if len(names) == 0 {
		return registry.Errorf(registry.CodeToolNotFound, "There is no tool %q; there are none now.", askedName(name))
	}
	slices.Sort(names)
	listed, size := 0, 0
	for listed < len(names) && size+len(names[listed]) <= maxToolsListed {
		size += len(names[listed]) + len(", ")
		listed++
	}
	list := strings.Join(names[:listed], ", ")
	if listed < len(names) {
		list += fmt.Sprintf(" and %d more", len(names)-listed)
	}
	return registry.Errorf(registry.CodeToolNotFound, "There is no tool %q. Use one of: %s.", askedName(name), list)
}

// current returns the tools that can be called now, with their names for models.
func (s *ToolSet) current(ctx context.Context) ([]boundTool, error) {
	var near []boundTool
	for _, t := range s.localNow() {
		source, _ := SourceOf(t)
		near = append(near, boundTool{ShownTool: ShownTool{Spec: t.Spec(), Source: source}, local: t})
	}
	user := s.sc.Caller.User
	if s.sc.Key.Session != "" {
		e, err := s.ownEntry(ctx)
		switch {
		case err == nil && !s.sc.Caller.Sees(e.Session.UserID): // another user's device
		case err == nil:
			near = append(near, s.toolsOf(e)...)
			if user == "" {
				user = e.Session.UserID
			}
		case !errors.Is(err, registry.CodeSessionNotFound) && !errors.Is(err, registry.CodeNotConnected):
			return nil, err
		}
	}
	others, err := s.otherTools(ctx, user)
	if err != nil {
		return nil, err
	}
	return nameAll(near, others), nil
}

// ownEntry returns the own session with its tools: after a move, those that it is expected to offer again.
func (s *ToolSet) ownEntry(ctx context.Context) (registry.Entry, error) {
	e, err := s.cfg.Directory.Entry(ctx, s.sc.Key)
	if errors.Is(err, registry.CodeSessionNotFound) {
		return s.sleepingEntry(ctx, e, err)
	}
	if err != nil && !errors.Is(err, registry.CodeNotConnected) ||
		err == nil && (len(e.Tools) > 0 || time.Since(e.Session.ConnectedAt) > settledAfter) {
		return e, err
	}
	q := registry.Query{Tenant: s.sc.Key.Tenant, Limit: 1}
	q.SessionID, q.Viewer = s.sc.Key.Session, s.sc.Caller.Viewer()
	due, failure := s.cfg.Directory.Awaited(ctx, q)
	switch {
	case failure != nil:
		return e, failure
	case len(due) == 0:
		return s.sleepingEntry(ctx, e, err)
	case err != nil:
		e.Session = due[0].Session
	}
	e.Tools = due[0].Tools
	return e, nil
}

// sleepingEntry returns the own session as it was last seen, if calls may wait for its device. Otherwise it returns e
// and err, which says that the session is not connected.
func (s *ToolSet) sleepingEntry(ctx context.Context, e registry.Entry, err error) (registry.Entry, error) {
	if s.sc.Queue == 0 || s.cfg.Devices == nil || err == nil {
		return e, err
	}
	known, _, failed := s.cfg.Devices.KnownDevices(ctx, registry.KnownQuery{
		Tenant: s.sc.Key.Tenant, Limit: 1,
		Target: registry.Target{SessionID: s.sc.Key.Session, Viewer: s.sc.Caller.Viewer()},
	})
	if failed != nil || len(known) == 0 {
		return e, cmp.Or(failed, err)
	}
	return registry.Entry{Session: known[0].Session, Tools: known[0].Tools}, nil
}

// settledAfter is how long a connected session may take to register its earlier tools, with a margin for clocks.
const settledAfter = registry.RegisterWait + time.Minute

// toolsOf returns the tools of a session that may be called, sorted by name.
func (s *ToolSet) toolsOf(e registry.Entry) []boundTool {
	var tools []boundTool
	for _, spec := range e.Tools {
		if s.allows(spec, nil) {
			tools = append(tools, boundTool{
				ShownTool: ShownTool{Spec: spec, Source: sourceOf(e.Session.Key)}, session: e.Session.Key.Session,
			})
		}
	}
	return tools
}

// otherTools returns the tools of the user's other sessions, sorted by name and then by seniority of the session.
func (s *ToolSet) otherTools(ctx context.Context, user string) ([]boundTool, error) {
	kind := policy.Join(s.sc.Kind, policy.Context(s.sc.Caller.Context))
	if !s.cfg.OtherSessions || user == "" || kind != ContextMain {
		return nil, nil
	}
	var found []registry.Entry
	q := registry.Query{
		Tenant: s.sc.Key.Tenant, Target: registry.Target{UserID: user, Viewer: s.sc.Caller.Viewer()},
		Limit: maxOtherSessions,
	}
	for range maxOtherPages {
		entries, next, err := s.cfg.Directory.List(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.Session.Key.Session != s.sc.Key.Session {
				found = append(found, e)
				q.Limit--
			}
		}
		if next == nil || q.Limit <= 0 {
			break
		}
		q.After = *next
	}
	slices.SortStableFunc(found, func(a, b registry.Entry) int { // the most senior gets the plain name
		return a.Session.Seniority().Compare(b.Session.Seniority())
	})
	var tools []boundTool
	for _, e := range found {
		tools = append(tools, s.toolsOf(e)...)
	}
	slices.SortStableFunc(tools, func(a, b boundTool) int { return strings.Compare(a.Spec.Name, b.Spec.Name) })
	return tools, nil
}

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/farhand/farhand/registry"
)

const (
	maxOtherSessions = 50        // of the same user, whose tools join in
	maxOtherPages    = 10        // read of them, as pages may hold less than they could
	maxToolsTold     = 1 << 10   // bytes of the names of tools that an error lists
	maxAskedName     = 64        // bytes kept of the name of a tool that does not exist
	hashSeparator    = "__"      // between the name of a tool and what tells it from another
	sourceRemote     = "remote:" // and the session
)

// ViewDirectory is the part of registry.Directory that views need.
type ViewDirectory interface {
	Entry(ctx context.Context, key registry.Key) (registry.Entry, error)
	List(ctx context.Context, q registry.Query) ([]registry.Entry, *registry.Cursor, error)
}

// ViewsConfig configures Views. Invoker, Directory and Policy are required.
type ViewsConfig struct {
	Invoker   *Invoker
	Directory ViewDirectory
	Policy    *Policy
	Toolbox   *Toolbox // local tools; nil: none

	// OtherSessions lets an agent session with one trusted person (ContextMain) also use the tools of the same user's other
	// sessions. The user is the one the caller's credentials name or, if they name nobody, the one the device names.
	OtherSessions bool

	// Unconfirmed lets models call tools whose security level is registry.SecurityUserConfirm. Until there is somebody to
	// ask, models are otherwise not told of them. Of those that are registry.SecurityAdminOnly they never are.
	Unconfirmed bool

	Log *slog.Logger // default: discard
}

// Views opens the view each agent session has of the tools there are. It is safe for concurrent use.
type Views struct{ cfg ViewsConfig }

// NewViews returns Views.
func NewViews(cfg ViewsConfig) *Views {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Views{cfg: cfg}
}

// View is what one agent session may call: the local tools made for it, and the tools of its device at this moment. It
// holds nothing that needs closing, and is safe for concurrent use.
type View struct {
	cfg   ViewsConfig
	sc    SessionContext
	local []Tool // by name
	trail *Trail // of a stateless session

	mu    sync.Mutex
	shown map[string]viewed // by the name the model was last told
}

// viewed is a tool as it was shown to a model.
type viewed struct {
	ViewTool
	local   Tool // nil for a remote tool
	session string
}

// ViewTool is one tool of a view.
type ViewTool struct {
	ModelName string            // unique in the view, and accepted by every model: ^[A-Za-z0-9_-]{1,64}$
	Spec      registry.ToolSpec // with the name its source knows it by
	Source    string            // registry.SourceBuiltin, or "remote:" and the session
}

// Open makes the local tools of an agent session. The tenant is the caller's, whatever sc.Key says.
func (v *Views) Open(sc SessionContext) *View {
	sc.Key.Tenant = sc.Caller.Tenant
	view := &View{cfg: v.cfg, sc: sc}
	if sc.Stateless {
		view.trail = new(Trail)
	}
	if v.cfg.Toolbox == nil {
		return view
	}
	tools, err := v.cfg.Toolbox.For(sc)
	if err != nil {
		v.cfg.Log.Warn("local tools not made as announced", "tenant", sc.Key.Tenant, "session", sc.Key.Session, "error", err)
	}
	view.local = slices.DeleteFunc(tools, func(t Tool) bool { return !v.cfg.offers(t.Spec()) })
	return view
}

// offers reports whether a model may be told of a tool, and so may call it.
func (c ViewsConfig) offers(spec registry.ToolSpec) bool {
	switch spec.SecurityLevel {
	case registry.SecurityAdminOnly:
		return false
	case registry.SecurityUserConfirm:
		return c.Unconfirmed && c.Policy.MayCall(spec.Name)
	default:
		return c.Policy.MayCall(spec.Name)
	}
}

// Tools returns what may be called now: the local tools, those of the own session, and then those of other sessions, each
// in order of name. It is read anew every time, so tools come and go with their devices. A device that is not connected has
// no tools, and neither has one whose user is another than the caller's; that the store cannot be read is an error.
func (v *View) Tools(ctx context.Context) ([]ViewTool, error) {
	tools, err := v.read(ctx)
	if err != nil {
		return nil, err
	}
	shown, list := make(map[string]viewed, len(tools)), make([]ViewTool, len(tools))
	for i, t := range tools {
		shown[t.ModelName], list[i] = t, t.ViewTool
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.shown = shown
	return list, nil
}

// InvokeRequest is a call as a model asks for it.
type InvokeRequest struct {
	CallID    string // default: a new one
	ModelName string // as it was shown
	Args      json.RawMessage
	Turn      string
}

// Invoke calls the tool a model means. A name means what it meant when the tools were last read, so that a tool that comes
// in the meantime is never mistaken for another one; whether that tool is still there is found out by calling it. A name that
// was not shown is an error with registry.CodeToolNotFound that lists what there is. It goes the way of every call, so that
// hooks count it and a record exists.
func (v *View) Invoke(ctx context.Context, r InvokeRequest) (Outcome, error) {
	req := Request{CallID: r.CallID, Caller: v.sc.Caller, Args: r.Args, Turn: r.Turn, trail: v.trail}
	if v.sc.Key.Session != "" && !v.sc.Stateless { // without one there is no conversation that anything could be kept of
		req.Conversation = v.sc.Key
	}
	t, err := v.lookUp(ctx, r.ModelName)
	if err != nil {
		req.Tool, req.missing = askedName(r.ModelName), err
	} else {
		req.Tool, req.Local, req.Target.SessionID = t.Spec.Name, t.local, t.session
	}
	return v.cfg.Invoker.Invoke(ctx, req)
}

// lookUp returns the tool a name means. If the name was not shown, it looks whether the tool has come since; what the other
// names mean stays as it was shown.
func (v *View) lookUp(ctx context.Context, name string) (viewed, error) {
	v.mu.Lock()
	t, known := v.shown[name]
	v.mu.Unlock()
	if known {
		return t, nil
	}
	tools, err := v.read(ctx)
	if err != nil {
		return viewed{}, err
	}
	names := make([]string, len(tools))
	for i, t := range tools {
		if names[i] = t.ModelName; names[i] == name {
			return t, nil
		}
	}
	return viewed{}, unknownTool(name, names)
}

// askedName is what is recorded of the name of a tool that does not exist.
func askedName(name string) string {
	return strings.ToValidUTF8(name[:min(len(name), maxAskedName)], "")
}

// unknownTool tells a model which tools there are instead, as many as fit.
func unknownTool(name string, names []string) error {
	if len(names) == 0 {
		return registry.Errorf(registry.CodeToolNotFound, "There is no tool %q, and no other one now.", askedName(name))
	}
	slices.Sort(names)
	told, size := 0, 0
	for told < len(names) && size+len(names[told]) <= maxToolsTold {
		size += len(names[told]) + len(", ")
		told++
	}
	list := strings.Join(names[:told], ", ")
	if told < len(names) {
		list += fmt.Sprintf(" and %d more", len(names)-told)
	}
	return registry.Errorf(registry.CodeToolNotFound, "There is no tool %q. There are: %s.", askedName(name), list)
}

// read returns the tools there are now, with the names models are told.
func (v *View) read(ctx context.Context) ([]viewed, error) {
	var near []viewed
	for _, t := range v.local {
		near = append(near, viewed{ViewTool: ViewTool{Spec: t.Spec(), Source: registry.SourceBuiltin}, local: t})
	}
	user := v.sc.Caller.User
	if v.sc.Key.Session != "" {
		e, err := v.cfg.Directory.Entry(ctx, v.sc.Key)
		switch {
		case err == nil && user != "" && e.Session.UserID != "" && user != e.Session.UserID: // somebody else's device
		case err == nil:
			near = append(near, v.of(e)...)
			if user == "" {
				user = e.Session.UserID
			}
		case !errors.Is(err, registry.CodeSessionNotFound) && !errors.Is(err, registry.CodeNotConnected):
			return nil, err
		}
	}
	others, err := v.others(ctx, user)
	if err != nil {
		return nil, err
	}
	return nameAll(near, others), nil
}

// of returns the tools of a session that may be called, in order of name.
func (v *View) of(e registry.Entry) []viewed {
	var tools []viewed
	for _, spec := range e.Tools {
		if v.cfg.offers(spec) {
			tools = append(tools, viewed{
				ViewTool: ViewTool{Spec: spec, Source: sourceOf(e.Session.Key)}, session: e.Session.Key.Session,
			})
		}
	}
	return tools
}

// others returns the tools of the user's other sessions, in order of name and then of seniority.
func (v *View) others(ctx context.Context, user string) ([]viewed, error) {
	if !v.cfg.OtherSessions || user == "" || v.sc.Kind != "" && v.sc.Kind != ContextMain {
		return nil, nil
	}
	var found []registry.Entry
	q := registry.Query{Tenant: v.sc.Key.Tenant, Target: registry.Target{UserID: user}, Limit: maxOtherSessions}
	for range maxOtherPages {
		entries, next, err := v.cfg.Directory.List(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.Session.Key.Session != v.sc.Key.Session {
				found = append(found, e)
				q.Limit--
			}
		}
		if next == nil || q.Limit <= 0 {
			break
		}
		q.After = *next
	}
	slices.SortStableFunc(found, func(a, b registry.Entry) int { // the plain name is the eldest's
		return a.Session.Seniority().Compare(b.Session.Seniority())
	})
	var tools []viewed
	for _, e := range found {
		tools = append(tools, v.of(e)...)
	}
	slices.SortStableFunc(tools, func(a, b viewed) int { return strings.Compare(a.Spec.Name, b.Spec.Name) })
	return tools, nil
}

package agent

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/registry"
)

// ContextKind says who takes part in a conversation.
type ContextKind = policy.Context

// The kinds. The empty kind means ContextMain.
const (
	ContextMain      = policy.Main      // one trusted person
	ContextGroup     = policy.Group     // more people than the device's owner
	ContextSandboxed = policy.Sandboxed // as before, with its local tools in a sandbox
)

// SessionContext is what a tool may know of the turn, or of the single call, that it is made for. Any field may be
// empty.
type SessionContext struct {
	Key       registry.Key  // the conversation, and the session of the device it is held with, if there is one
	Stateless bool          // the caller keeps the conversation: Key is only the session whose tools join in
	Caller    auth.Identity // who is asking
	AgentID   string        // of the agent that holds the conversation
	AgentDir  string        // folder of that agent, the same for all its sessions
	Channel   string        // the API the messages come through
	Kind      ContextKind
	Sandboxed bool // programs run in a sandbox: Kind says so
	Config    any  // what the Registration brings

	// Fence is that of the turn; zero: none, or its caller keeps the conversation.
	Fence int64

	// Place says which life of the session this is, for tools that keep something (Registration.Keeps) when they run.
	Place registry.Place

	// Workspace is the folder of this agent session. Opening makes it, and fails if the gateway has no room for it.
	Workspace Workspace
}

// Workspace is the folder of one agent session, which is made when it is first needed.
type Workspace interface {
	Open(ctx context.Context) (sandbox.Workspace, error)
}

// ChannelCall is SessionContext.Channel of a call that belongs to no turn. Package chat has the others.
const ChannelCall = "call"

// Setting is where agent sessions live: what every SessionContext of a gateway says of its surroundings.
type Setting struct {
	AgentID    string
	AgentDir   string     // absolute path
	Workspaces Workspaces // nil: there are none

	// Claim returns where what a session keeps is kept, for tools that open its workspace and do not say that they keep
	// something. It fills in the pod that asks. Nil: a conversation has one life.
	Claim func(ctx context.Context, c registry.PlaceClaim) (registry.Place, error)
}

// Workspaces knows the folders of agent sessions.
type Workspaces interface {
	// Of returns the workspace of an agent session at a place, which is zero where nobody else has it. It makes nothing
	// yet.
	Of(id SessionID, at registry.Place) Workspace
}

// SessionID names an agent session: what one user does in a conversation or, outside of any that the gateway keeps, all
// that one identity calls. Devices choose the names of their sessions, so the same name may be another user's later.
// What runs in a sandbox is another session than what does not: nothing that was written in the sandbox
// is run outside of it.
type SessionID struct {
	Tenant       string
	Conversation string // the session of the device; empty: none
	Identity     string // the user or, without a conversation, auth.Identity.Scope
	Sandboxed    bool
	Generation   int64 // of the conversation: what an erased one has left is another's
}

// in completes what a session context says of its surroundings.
func (sc SessionContext) in(s Setting) SessionContext {
	sc.AgentID, sc.AgentDir = s.AgentID, s.AgentDir
	sc.Kind = policy.Join(sc.Kind, policy.Context(sc.Caller.Context))
	sc.Sandboxed = sc.Kind == ContextSandboxed
	sc.Workspace = noWorkspace{}
	if s.Workspaces != nil {
		sc.Workspace = s.Workspaces.Of(sc.ID(), sc.Place)
		if sc.Place == (registry.Place{}) && s.Claim != nil {
			sc.Workspace = claimedWorkspace{sc, s}
		}
	}
	return sc
}

// placeKey names the place of an agent session. Sessions inside and outside of the sandbox share one.
func (sc SessionContext) placeKey() registry.PlaceKey {
	if sc.Key.Session != "" && !sc.Stateless {
		return registry.PlaceKey{Tenant: sc.Caller.Tenant, Session: sc.Key.Session}
	}
	return registry.PlaceKey{Tenant: sc.Caller.Tenant, Identity: sc.Caller.Scope()}
}

// claimedWorkspace is the workspace for a tool that does not say that it keeps something: what it opens is that of the
// conversation's current generation, on the pod that runs it.
type claimedWorkspace struct {
	sc      SessionContext
	setting Setting
}

// Open implements Workspace.
func (w claimedWorkspace) Open(ctx context.Context) (sandbox.Workspace, error) {
	at, err := w.setting.Claim(ctx, registry.PlaceClaim{
		Key: w.sc.placeKey(), Kind: KeepsWorkspace().Kind, Fence: w.sc.Fence, Keep: true,
	})
	if err != nil {
		return sandbox.Workspace{}, err
	}
	id := w.sc.ID()
	id.Generation = at.Generation
	return w.setting.Workspaces.Of(id, registry.Place{}).Open(ctx)
}

// ID returns the id of the agent session.
func (sc SessionContext) ID() SessionID {
	id := SessionID{Tenant: sc.Caller.Tenant, Sandboxed: sc.Sandboxed, Generation: sc.Place.Generation}
	if sc.Key.Session != "" && !sc.Stateless {
		id.Conversation, id.Identity = sc.Key.Session, sc.Caller.User
	} else {
		id.Identity = sc.Caller.Scope()
	}
	return id
}

// noWorkspace is the workspace of a gateway that has none.
type noWorkspace struct{}

// Open implements Workspace.
func (noWorkspace) Open(context.Context) (sandbox.Workspace, error) {
	return sandbox.Workspace{}, registry.Errorf(registry.CodeInternal, "This gateway keeps no workspaces.")
}

// Places carries calls of local tools that keep something (Registration.Keeps) to the pod that has it. *routing.Places
// is one.
type Places interface {
	// Run runs a tool where its place is, here or on another pod, by what Serve was given there.
	Run(
		ctx context.Context, e registry.Errand, report func(registry.Report),
	) (registry.Result, error)

	// Serve says what runs tools on this pod.
	Serve(k registry.PlaceKeeper)
}

// keptCall is what the pod that runs a tool must know of a call beside the tool and its arguments: what the tool can
// learn from its SessionContext and the context of Execute. Of the caller that is what the record of a call keeps, so
// neither its name nor when its credential ends. The call was checked where it came in.
type keptCall struct {
	Session   string           `json:"session,omitempty"` // of SessionContext.Key
	Stateless bool             `json:"stateless,omitempty"`
	User      string           `json:"user,omitempty"`   // of the caller
	Caller    string           `json:"caller,omitempty"` // what else is known of it: auth.Identity.Note
	Channel   string           `json:"channel,omitempty"`
	Kind      ContextKind      `json:"kind,omitempty"`
	Model     bool             `json:"model,omitempty"`
	Endpoint  Endpoint         `json:"endpoint,omitempty"`
	Resources policy.Resources `json:"resources"`
	Programs  policy.Programs  `json:"programs"`
	Source    string           `json:"source,omitempty"`
}

// keeps says what the tool of a call keeps, as far as it matters which pod runs it.
func (i *Invoker) keeps(p *prepared) Keeps {
	if i.cfg.Places == nil || i.cfg.LocalTools == nil || p.inv.Source != registry.SourceLocal {
		return Keeps{}
	}
	return i.cfg.LocalTools.keeps(p.inv.Spec.Name)
}

// runKept runs a tool on the pod that has what it keeps.
func (i *Invoker) runKept(
	ctx context.Context, p *prepared, keeps Keeps, report func(registry.Report),
) (registry.Result, error) {
	sc := &p.session
	about := keptCall{
		Session: sc.Key.Session, Stateless: sc.Stateless, User: sc.Caller.User, Caller: sc.Caller.Note(),
		Channel: sc.Channel, Kind: policy.Join(sc.Kind, policy.Context(sc.Caller.Context)), Model: p.inv.Model,
		Endpoint: p.inv.Endpoint, Source: p.inv.Source,
	}
	if p.inv.Policy != nil {
		about.Resources, about.Programs = p.inv.Policy.Resources, p.inv.Policy.Programs
	}
	text, err := json.Marshal(about)
	if err != nil {
		return registry.Result{}, registry.Internal(err).With(registry.DispatchedNo)
	}
	res, err := i.cfg.Places.Run(ctx, registry.Errand{
		Place: registry.Place{Key: sc.placeKey()}, Kind: keeps.Kind, Fence: sc.Fence, CallID: p.inv.CallID,
		Tool: p.inv.Spec.Name, Args: p.inv.Args, Context: text, Timeout: p.remaining,
		By: sc.Caller.Owner().Identity,
	}, report)
	if err != nil {
		return registry.Result{}, localError(ctx, &p.inv, err)
	}
	return res, nil
}

// runErrand runs a tool of this pod for a call that was checked on this pod or another one.
func (i *Invoker) runErrand(
	ctx context.Context, e registry.Errand, report func(registry.Report),
) (registry.Result, error) {
	var about keptCall
	if err := json.Unmarshal(e.Context, &about); err != nil {
		return registry.Result{}, registry.Internal(err).With(registry.DispatchedNo)
	}
	caller := auth.OfNote(e.Place.Key.Tenant, about.User, about.Caller)
	sc := SessionContext{
		Key: registry.Key{Tenant: caller.Tenant, Session: about.Session}, Stateless: about.Stateless, Caller: caller,
		Channel: about.Channel, Kind: about.Kind, Place: e.Place,
	}
	tool, err := i.cfg.LocalTools.find(sc, e.Tool)
	if err != nil {
		i.cfg.Log.Warn("built-in tool not made as announced", "tool", e.Tool, "error", err)
	}
	if tool == nil {
		return registry.Result{}, registry.Errorf(registry.CodeToolNotFound,
			"The pod that keeps what the tool %q works on does not have the tool.", e.Tool).With(registry.DispatchedNo)
	}
	if why := unavailable(tool); why != "" {
		return registry.Result{}, registry.Errorf(registry.CodeToolNotFound,
			"The tool %q is not available on the pod that keeps what it works on: %s", e.Tool, why,
		).With(registry.DispatchedNo)
	}
	p := &prepared{local: tool, session: sc, remaining: e.Timeout}
	p.inv = Invocation{
		CallID: e.CallID, Caller: caller, Spec: tool.Spec(), Args: e.Args, Asked: e.Args, Timeout: e.Timeout,
		Model: about.Model, Endpoint: about.Endpoint, Context: about.Kind, Source: about.Source,
		Policy: &policy.Decision{Allowed: true, Resources: about.Resources, Programs: about.Programs},
	}
	if !about.Stateless && about.Session != "" {
		p.inv.Conversation = sc.Key
	}
	if e.Anew {
		p.lost = i.cfg.LocalTools.keeps(e.Tool).Lost
	}
	return i.runTimed(ctx, p, report)
}

// TellLost says that something is lost that a local tool kept before. Its caller reads it before the result, or before
// the error if there is none. ctx is that of Execute.
func TellLost(ctx context.Context, what string) {
	call, _ := ctx.Value(toolCallKey{}).(*toolCall)
	if call == nil {
		return
	}
	call.mu.Lock()
	defer call.mu.Unlock()
	if !slices.Contains(call.losses, what) {
		call.losses = append(call.losses, what)
	}
}

// withLosses returns a result that says first what is lost.
func (c *toolCall) withLosses(res registry.Result) registry.Result {
	said := c.toldLosses()
	if said == "" {
		return res
	}
	res.Output = said + res.Output
	if res.Error != "" {
		res.Error = said + res.Error
	}
	return res
}

// errorWithLosses is withLosses for a call without a result: no later call knows of them.
func (c *toolCall) errorWithLosses(err error) error {
	said := c.toldLosses()
	if said == "" {
		return err
	}
	e := *registry.AsError(err)
	e.Message = said + e.Message
	return &e
}

// toldLosses returns what is lost as its caller reads it, empty if nothing is.
func (c *toolCall) toldLosses() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.losses) == 0 {
		return ""
	}
	return "[" + strings.Join(c.losses, " ") + "]\n"
}

// Files keeps what is too large for a result, or has no place where the result is told. *blobs.Service is one.
type Files interface {
	// Keep stores the data of a part of the result of a call, and returns the part with a link that expires in its
	// place. It fails if there is no room. It is called concurrently.
	Keep(ctx context.Context, key registry.Key, callID string, p registry.Part) (registry.Part, error)
}

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

// ContextKind is the kind of participants in a conversation.
type ContextKind = policy.Context

// The kinds. The empty kind means ContextMain.
const (
	ContextMain      = policy.Main      // one trusted person
	ContextGroup     = policy.Group     // more people than the device's owner
	ContextSandboxed = policy.Sandboxed // as ContextGroup, with its local tools in a sandbox
)

// SessionContext is what a tool can know of its turn or single call. Any field may be empty.
type SessionContext struct {
	Key       registry.Key  // the conversation, and the session of its device, if any
	Stateless bool          // the caller keeps the conversation: Key is only the session whose tools are included
	Caller    auth.Identity // the identity that makes the request
	AgentID   string        // of the agent that holds the conversation
	AgentDir  string        // folder of that agent, the same for all its sessions
	Channel   string        // the API of the messages
	Kind      ContextKind
	Sandboxed bool           // programs run in a sandbox; derived from Kind
	Fence     int64          // of the turn; zero: none, or the caller keeps the conversation
	Place     registry.Place // owner and generation of the session, for tools with state (Registration.State)
	Workspace Workspace      // the folder of this agent session; Open creates it, if there is room
}

// Workspace is the folder of one agent session. It is created on first use.
type Workspace interface {
	Open(ctx context.Context) (sandbox.Workspace, error)
}

// ChannelCall is SessionContext.Channel of a call that belongs to no turn. Package chat has the others.
const ChannelCall = "call"

// Setting describes the environment of agent sessions. It is the same in every SessionContext of a gateway.
type Setting struct {
	AgentID    string
	AgentDir   string     // absolute path
	Workspaces Workspaces // nil: there are none

	// Claim returns the place of a session's state. It serves tools that open the workspace without declaring State. It
	// fills in the asking pod. Nil: a conversation has only one generation.
	Claim func(ctx context.Context, c registry.PlaceClaim) (registry.Place, error)
}

// Workspaces finds the folders of agent sessions.
type Workspaces interface {
	// Find returns the workspace of an agent session at a place. at is zero if no other pod can own it. Find creates
	// nothing yet.
	Find(id SessionID, at registry.Place) Workspace
}

// SessionID identifies an agent session: what one user does in a conversation or, outside of conversations that the
// gateway keeps, all calls of one identity. Devices choose the names of their sessions, so another user may use the
// same name later. Sandboxed sessions are separate from others, so that files written in a sandbox are never run
// outside of it.
type SessionID struct {
	Tenant       string
	Conversation string // the session of the device; empty: none
	Identity     string // the user or, without a conversation, auth.Identity.Scope
	Sandboxed    bool
	Generation   int64 // of the conversation; state of an erased conversation has an earlier generation
}

// withSetting fills in the fields that depend on the setting.
func (sc SessionContext) withSetting(s Setting) SessionContext {
	sc.AgentID, sc.AgentDir = s.AgentID, s.AgentDir
	sc.Kind = policy.Join(sc.Kind, policy.Context(sc.Caller.Context))
	sc.Sandboxed = sc.Kind == ContextSandboxed
	sc.Workspace = noWorkspace{}
	if s.Workspaces != nil {
		sc.Workspace = s.Workspaces.Find(sc.ID(), sc.Place)
		if sc.Place == (registry.Place{}) && s.Claim != nil {
			sc.Workspace = claimedWorkspace{sc, s}
		}
	}
	return sc
}

// placeKey returns the key of an agent session's place. Sessions inside and outside of the sandbox share one.
func (sc SessionContext) placeKey() registry.PlaceKey {
	id := sc.ID()
	if id.Conversation != "" {
		id.Identity = ""
	}
	return registry.PlaceKey{Tenant: id.Tenant, Session: id.Conversation, Identity: id.Identity}
}

// claimedWorkspace is the workspace, of the conversation's current generation, for a tool that does not declare State.
type claimedWorkspace struct {
	sc      SessionContext
	setting Setting
}

func (w claimedWorkspace) Open(ctx context.Context) (sandbox.Workspace, error) {
	at, err := w.setting.Claim(ctx, registry.PlaceClaim{
		Key: w.sc.placeKey(), Kind: WorkspaceState().Kind, Fence: w.sc.Fence, Keep: true,
	})
	if err != nil {
		return sandbox.Workspace{}, err
	}
	id := w.sc.ID()
	id.Generation = at.Generation
	return w.setting.Workspaces.Find(id, registry.Place{}).Open(ctx)
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

type noWorkspace struct{}

func (noWorkspace) Open(context.Context) (sandbox.Workspace, error) {
	return sandbox.Workspace{}, registry.Errorf(registry.CodeInternal, "Workspaces are off on this gateway.")
}

// Places runs calls of local tools with state (Registration.State) on the pod that has it. *routing.Places is one.
type Places interface {
	// Run runs a tool at its place, on this pod or another one, with the PlaceKeeper that Serve registered there.
	Run(
		ctx context.Context, e registry.Errand, report func(registry.Report),
	) (registry.Result, error)

	// Serve registers what runs tools on this pod.
	Serve(k registry.PlaceKeeper)
}

// placedCall is what the pod that runs a tool must know of a call, in addition to the tool and its arguments. It has
// what the tool can read from its SessionContext and the context of Execute. Of the caller it has what a call's record
// keeps: neither the name nor the expiry of the credential. The receiving pod has already checked the call.
type placedCall struct {
	Session   string           `json:"session,omitempty"` // of SessionContext.Key
	Stateless bool             `json:"stateless,omitempty"`
	User      string           `json:"user,omitempty"`   // of the caller
	Caller    string           `json:"caller,omitempty"` // the rest of its identity: auth.Identity.Note
	Channel   string           `json:"channel,omitempty"`
	Kind      ContextKind      `json:"kind,omitempty"`
	Model     bool             `json:"model,omitempty"`
	Endpoint  Endpoint         `json:"endpoint,omitempty"`
	Resources policy.Resources `json:"resources"`
	Programs  policy.Programs  `json:"programs"`
	Source    string           `json:"source,omitempty"`
}

func (i *Invoker) podState(p *prepared) PodState {
	if i.cfg.Places == nil || i.cfg.LocalTools == nil || p.inv.Source != registry.SourceLocal {
		return PodState{}
	}
	return i.cfg.LocalTools.podState(p.inv.Spec.Name)
}

// runAtPlace runs a tool on the pod that has its state.
func (i *Invoker) runAtPlace(
	ctx context.Context, p *prepared, keeps PodState, report func(registry.Report),
) (registry.Result, error) {
	sc := &p.session
	about := placedCall{
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

// runErrand runs a tool on this pod for a call that this pod or another one has checked.
func (i *Invoker) runErrand(
	ctx context.Context, e registry.Errand, report func(registry.Report),
) (registry.Result, error) {
	var about placedCall
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
		i.cfg.Log.Warn("factory did not return the announced tool", "tool", e.Tool, "error", err)
	}
	if tool == nil {
		return registry.Result{}, registry.Errorf(registry.CodeToolNotFound,
			"The pod with the state of the tool %q does not have the tool.", e.Tool).With(registry.DispatchedNo)
	}
	if why := unavailable(tool); why != "" {
		return registry.Result{}, registry.Errorf(registry.CodeToolNotFound,
			"The tool %q is not available on the pod with its state: %s", e.Tool, why,
		).With(registry.DispatchedNo)
	}
	p := &prepared{req: new(Request), local: tool, session: sc, remaining: e.Timeout}
	p.inv = Invocation{
		CallID: e.CallID, Caller: caller, Spec: tool.Spec(), Args: e.Args, Asked: e.Args, Timeout: e.Timeout,
		Model: about.Model, Endpoint: about.Endpoint, Context: about.Kind, Source: about.Source,
		Policy: &policy.Decision{Allowed: true, Resources: about.Resources, Programs: about.Programs},
	}
	if !about.Stateless && about.Session != "" {
		p.inv.Conversation = sc.Key
	}
	if e.Anew {
		p.lost = i.cfg.LocalTools.podState(e.Tool).Lost
	}
	return i.runTimed(ctx, p, report)
}

// ReportLost reports, before the result or the error of a local tool, that state which it kept is lost. ctx is that of
// Execute.
func ReportLost(ctx context.Context, what string) {
	call := toolCallOf(ctx)
	call.mu.Lock()
	defer call.mu.Unlock()
	if !slices.Contains(call.losses, what) {
		call.losses = append(call.losses, what)
	}
}

// withLosses returns an outcome with the losses before the result, or before the error if there is none.
func (c *toolCall) withLosses(res registry.Result, err error) (registry.Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.losses) == 0 {
		return res, err
	}
	said := "[" + strings.Join(c.losses, " ") + "]\n"
	if err != nil {
		e := *registry.AsError(err)
		e.Message = said + e.Message
		return res, &e
	}
	res.Output = said + res.Output
	if res.Error != "" {
		res.Error = said + res.Error
	}
	return res, nil
}

// Files stores data that is too large for a result, or for its reader. *blobs.Service is one.
type Files interface {
	// Store stores the data of a part of the result of a call, and returns the part with an expiring link instead. It
	// fails if there is no room. It must be safe for concurrent use.
	Store(ctx context.Context, key registry.Key, callID string, p registry.Part) (registry.Part, error)
}

package agent

import (
	"context"

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

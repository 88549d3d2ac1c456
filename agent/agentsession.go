package agent

import (
	"context"
	"time"

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
	Memory    Memory         // small values that its tools keep
	Queue     time.Duration  // how long calls may wait for a sleeping device; zero: its tools are not offered
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

	Memories    registry.ToolMemoryStore // nil: there are no memories
	MemoryBytes int64                    // quota of a tenant's memories
	MemoryLife  time.Duration            // of a memory after its last use

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
	sc.Memory = sc.memoryOf(s)
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

// Files stores data that is too large for a result, or for its reader. *blobs.Service is one.
type Files interface {
	// Store stores the data of a part of the result of a call, and returns the part with an expiring link instead. It
	// fails if there is no room. It must be safe for concurrent use.
	Store(
		ctx context.Context, key registry.Key, owner registry.BlobOwner, callID string, p registry.Part,
	) (registry.Part, error)
}

package registry

import (
	"context"
	"encoding/json"
	"time"
)

// PlaceKey identifies a place: the state of the gateway's own tools on a pod, such as a browser or a folder. A place
// belongs to one conversation or, outside of conversations, to one identity.
type PlaceKey struct {
	Tenant   string
	Session  string // the conversation; empty: none
	Identity string // without a conversation: the identity's storage key, which may be empty
}

// Place is the owner and the current generation of a PlaceKey.
type Place struct {
	Key PlaceKey

	// Generation separates a conversation's state from the state of an erased conversation with the same id. It grows
	// with each erasure, and is zero without a conversation.
	Generation int64

	Pod   string // the owner: all calls of stateful tools go there
	Epoch int64  // grows with each change of the owner

	// Before is the previous epoch in which the claimed kind was kept; zero: never. If it is not zero, an owner that is
	// gone kept it.
	Before int64

	// Kept says that the claimed kind is recorded as kept in this epoch (PlaceClaim.Keep).
	Kept bool
}

// PlaceClaim asks for the owner of a place.
type PlaceClaim struct {
	Key  PlaceKey
	Pod  string // becomes the owner if no living pod is
	Kind string // the kind of state: a short name, such as "browser"

	// Fence is the fence of the claiming turn, zero without a turn. A turn that began before its conversation was
	// erased is rejected with ErrErased.
	Fence int64

	// Keep records that Kind is kept there from now on, if Pod is the owner. If an owner that claimed without Keep
	// dies, no state is lost.
	Keep bool
}

// PlaceStore records which pod owns a place. A place is dropped some time after its last use.
//
// EraseConversation of ConversationIndex gives the conversation's place a new generation and no owner.
type PlaceStore interface {
	// ClaimPlace returns the current place. If the owner's lease has lapsed or the owner has left, the claiming pod
	// replaces it. While the store may lack places that pods hold (see PodStore.Whole), claims of unknown places fail
	// with CodeStoreUnavailable.
	ClaimPlace(ctx context.Context, c PlaceClaim) (Place, error)

	// RefreshPlaces extends the life of one pod's places, and restores those that the store has lost. It returns the
	// places that the pod no longer owns: they have another owner, or another generation.
	RefreshPlaces(ctx context.Context, places []Place) (gone []Place, err error)

	// ReleasePlaces releases places that still belong to the pod they name. The store remembers what was kept there, so
	// that the next owner can report it as lost.
	ReleasePlaces(ctx context.Context, places []Place) error

	// PlaceGenerations returns the generations of conversations in the order of keys; zero: unknown.
	PlaceGenerations(ctx context.Context, keys []Key) ([]int64, error)
}

// ErrErased is the error for a turn whose conversation was erased during the turn.
var ErrErased = Errorf(CodeCancelled, "The conversation was deleted.").With(DispatchedNo)

// Conversation returns the key of the place's conversation, and whether there is one.
func (k PlaceKey) Conversation() (Key, bool) {
	return Key{Tenant: k.Tenant, Session: k.Session}, k.Session != ""
}

// Errand is a call of a stateful tool for the pod that owns the place. The pod that received the call has already made
// all checks.
type Errand struct {
	Place   Place           `json:"place"` // its key; the rest is filled in on the way
	Kind    string          `json:"kind"`  // the kind of state that the tool keeps
	Fence   int64           `json:"-"`     // as in PlaceClaim
	CallID  string          `json:"call"`  // the call whose log gets the tool's reports
	Tool    string          `json:"tool"`
	Args    JSON            `json:"args,omitzero"`
	Context json.RawMessage `json:"context,omitempty"` // the tool's context of the call, defined by package agent
	By      string          `json:"by,omitempty"`      // the caller's identity, charged for its use of the pod
	Timeout time.Duration   `json:"-"`

	// Anew is set where the tool runs. It says that this is the first call of its kind here, and that another pod,
	// which is gone, had the former state.
	Anew bool `json:"-"`
}

// PlaceKeeper handles the state at places of this pod. Nil fields keep no state.
type PlaceKeeper struct {
	// Run runs a tool on this pod. Place.Before and Anew of the errand say what is lost.
	Run func(ctx context.Context, e Errand, report func(Report)) (Result, error)

	// Erased ends and removes a conversation's state, except for its current generation.
	Erased func(ctx context.Context, conversation Key, current int64)

	// Lost ends the state at a place that another pod now owns. State that pods share stays.
	Lost func(ctx context.Context, p Place)
}

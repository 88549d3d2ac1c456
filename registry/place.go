package registry

import (
	"context"
	"encoding/json"
	"time"
)

// DefaultPlaceTTL is how long a place is remembered after its last use when nothing else is configured.
const DefaultPlaceTTL = 25 * time.Hour

// PlaceKey names a place: what the gateway's own tools keep on a pod, such as a browser or a folder, for one
// conversation or, outside of conversations, for one identity.
type PlaceKey struct {
	Tenant   string
	Session  string // the conversation; empty: none
	Identity string // without a conversation: what its things are kept under, which may be empty
}

// Place is where a PlaceKey is, and which of its lives this is.
type Place struct {
	Key PlaceKey

	// Generation tells what a conversation keeps from what an erased one under the same id has left. It grows with each
	// erasure, and is zero without a conversation.
	Generation int64

	Pod   string // the owner: all calls of tools that keep something go there
	Epoch int64  // grows with each change of the owner

	// Before is the epoch in which what was asked for was kept last before this one; zero: never. If it is not zero,
	// an owner that is gone kept it.
	Before int64

	// Kept says that what was asked for has been noted as kept in this epoch (PlaceClaim.Keep).
	Kept bool
}

// PlaceClaim asks who owns a place.
type PlaceClaim struct {
	Key  PlaceKey
	Pod  string // becomes the owner if there is none that lives
	Kind string // what is kept there: a short name, such as "browser"

	// Fence is that of the turn that asks, zero if no turn does. A turn that began before its conversation was erased
	// is refused with ErrErased.
	Fence int64

	// Keep notes that Kind is kept there from now on, if Pod is the owner. An owner that asks without it, and goes, has
	// lost nothing.
	Keep bool
}

// PlaceStore keeps which pod owns a place. All methods are safe for concurrent use and honour their context. A failure
// of the store is an *Error with CodeStoreUnavailable. A place is forgotten some time after its last use.
//
// EraseConversation of ConversationIndex gives the place of the conversation a new generation, and no owner.
type PlaceStore interface {
	// ClaimPlace returns the place as it is now. An owner whose lease has lapsed, or that has left, is replaced by the
	// pod that asks. While the store may lack places that pods hold (see PodStore.Whole), nobody gets a place that it
	// does not know: CodeStoreUnavailable.
	ClaimPlace(ctx context.Context, c PlaceClaim) (Place, error)

	// RefreshPlaces makes places that one pod owns last longer, and writes again those that the store has lost. It
	// returns those that the pod owns no longer: they have another owner, or another generation.
	RefreshPlaces(ctx context.Context, places []Place) (gone []Place, err error)

	// ReleasePlaces gives places up, if they still belong to the pod that the places name. What was kept there is
	// remembered, so that the next owner can say that it is lost.
	ReleasePlaces(ctx context.Context, places []Place) error

	// PlaceGenerations returns the generations of conversations, in the order of their keys; zero: it is not known.
	PlaceGenerations(ctx context.Context, keys []Key) ([]int64, error)
}

// ErrErased is the error for a turn whose conversation was erased meanwhile.
var ErrErased = Errorf(CodeCancelled, "The conversation was deleted.").With(DispatchedNo)

// Conversation returns the key of the conversation of a place, and whether there is one.
func (k PlaceKey) Conversation() (Key, bool) {
	return Key{Tenant: k.Tenant, Session: k.Session}, k.Session != ""
}

// Errand is a call of a tool that keeps something on its pod, for the pod that owns the place. All that must be checked
// before a call runs has been checked where it came in.
type Errand struct {
	Place   Place           `json:"place"` // its key; the rest is filled in on the way
	Kind    string          `json:"kind"`  // what the tool keeps
	Fence   int64           `json:"-"`     // as of PlaceClaim
	CallID  string          `json:"call"`  // of the call, whose log gets what the tool reports
	Tool    string          `json:"tool"`
	Args    JSON            `json:"args,omitzero"`
	Context json.RawMessage `json:"context,omitempty"` // what the tool is told of the call; package agent knows it
	By      string          `json:"by,omitempty"`      // the identity of the caller: what it takes of a pod counts for it
	Timeout time.Duration   `json:"-"`

	// Anew says, where the tool runs, that this is the first call of its kind here, and that another pod, which is
	// gone, had what it kept.
	Anew bool `json:"-"`
}

// PlaceKeeper is what keeps something at places of this pod. Fields that are nil keep nothing.
type PlaceKeeper struct {
	// Run runs a tool on this pod. Place.Before and Anew of the errand say what is lost.
	Run func(ctx context.Context, e Errand, report func(Report)) (Result, error)

	// Erased ends and removes what is kept of a conversation, but for its current generation.
	Erased func(ctx context.Context, conversation Key, current int64)

	// Lost ends what is kept at a place that another pod has now. What pods share stays.
	Lost func(ctx context.Context, p Place)
}

package routing

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// movesStore counts the answers that are sent to it.
type movesStore struct {
	*memory.Store
	moves atomic.Int64
}

func (s *movesStore) MoveCall(
	ctx context.Context, tenant, callID string, e registry.Event, c registry.Change,
) (registry.Moved, error) {
	s.moves.Add(1)
	return s.Store.MoveCall(ctx, tenant, callID, e, c)
}

// A device answers calls that there are not. A short answer is one request to the store; a long one is not sent there,
// and neither is one whose id is none of the gateway's.
func TestAnswersToNoCall(t *testing.T) {
	store := &movesStore{Store: memory.New(memory.Options{})}
	l := connect(t, startPod(t, store, "a"), newNotedConn(), nil)
	for _, tc := range []struct {
		name, id, output string
		sent             bool
	}{
		{"short", registry.NewCallID(), "x", true},
		{"long", registry.NewCallID(), strings.Repeat("x", 1<<20), false},
		{"an id of a kilobyte", strings.Repeat("x", 1<<10), "x", false},
	} {
		before, ignored := store.moves.Load(), make(chan bool, 1)
		l.Complete(tc.id, registry.Result{Success: true, Output: tc.output}, func(i bool) { ignored <- i })
		if !<-ignored || (store.moves.Load() > before) != tc.sent {
			t.Errorf("%s: sent to the store %d times", tc.name, store.moves.Load()-before)
		}
	}
}

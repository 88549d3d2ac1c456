package routing

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// slowTools is a store that takes a second for the tools of a session, and notes what it is told.
type slowTools struct {
	*memory.Store
	mu    sync.Mutex
	order []string
}

func (s *slowTools) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.order = append(s.order, what)
}

func (s *slowTools) SetTools(ctx context.Context, session registry.Session, tools []registry.ToolSpec) error {
	s.note("tools")
	time.Sleep(time.Second)
	s.note("stored")
	return s.Store.SetTools(ctx, session, tools)
}

func (s *slowTools) Release(ctx context.Context, session registry.Session, back time.Duration) (bool, error) {
	s.note("release")
	return s.Store.Release(ctx, session, back)
}

// Writes of one session are made one after the other, however they are asked for, and nobody holds a lock meanwhile.
func TestClosingWaitsForTheWriteUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowTools{Store: memory.New(memory.Options{})}
		pod := startPod(t, store, "a")
		l := connect(t, pod, deafConn{}, nil)
		l.Close(t.Context())
		if want := []string{"tools", "stored", "release"}; !slices.Equal(store.order, want) {
			t.Errorf("%v, want %v", store.order, want)
		}
	})
}

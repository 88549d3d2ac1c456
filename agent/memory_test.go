package agent_test

import (
	"context"
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/routing"
)

// stuckFeed is a store whose feed takes nothing until it is told to.
type stuckFeed struct {
	*memory.Store
	proceed chan struct{}
}

func (s stuckFeed) AppendActivity(ctx context.Context, all []registry.Activity) error {
	<-s.proceed
	return s.Store.AppendActivity(ctx, all)
}

// Not parallel: it looks at the heap. The records of calls that were refused wait for the store without what was asked.
func TestRefusedCallsKeepNoArguments(t *testing.T) {
	store := stuckFeed{memory.New(memory.Options{}), make(chan struct{})}
	bus := store.NewBus()
	pod, err := routing.NewPod(routing.PodConfig{ID: "a", Store: store, Bus: bus})
	if err != nil {
		t.Fatal(err)
	}
	if err := pod.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		close(store.proceed)
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Limit)
		defer cancel()
		if err := pod.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := bus.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	invoker := agent.NewInvoker(agent.Config{Router: pod.Router, CallLog: pod.Calls,
		Policy: newPolicy(t, agent.PolicyRules{})})
	const calls, size = 50, 1 << 20
	for _, async := range []bool{false, true} {
		before := heapInUse()
		for range calls {
			args := json.RawMessage(`{"x":"` + strings.Repeat("x", size) + `"}`)
			if _, err := invoker.Invoke(t.Context(), agent.Request{
				Caller: auth.Identity{Tenant: "t"}, Tool: "none", Args: registry.MustJSON(string(args)), Async: async,
			}); err == nil {
				t.Fatal("a tool that is not there ran")
			}
		}
		if kept := heapInUse() - before; kept > calls*size/2 {
			t.Errorf("async %v: %d bytes are kept of %d calls", async, kept, calls)
		}
	}
}

func heapInUse() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

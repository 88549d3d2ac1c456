package redisstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/registrytest"
	"github.com/farhand/farhand/registry/routing"
)

// Whoever asks for a session that a pod holds, just after Redis was emptied, never hears that there is none: the store
// says that it cannot say, until the session has been announced again. What nobody has is not found, soon afterwards.
func TestEmptiedRedisDoesNotDenyItsSessions(t *testing.T) {
	server := redistest.Start(t)
	var pods []*routing.Pod
	for range 2 {
		options := Options{URL: server.URL(), Limits: registry.Limits{PodLease: 3 * time.Second}}
		conn := must[*Conn](t)(Dial(t.Context(), options))
		bus := conn.Bus()
		config := routing.PodConfig{Store: conn.Store(), Bus: bus, Limits: registry.Limits{PodLease: 3 * time.Second}}
		pod := must[*routing.Pod](t)(routing.NewPod(config))
		if err := pod.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), testkit.Limit)
			defer cancel()
			if err := errors.Join(pod.Close(ctx), bus.Close(ctx), conn.Close()); err != nil {
				t.Error(err)
			}
		})
		pods = append(pods, pod)
	}
	const rounds = 5
	for i := range rounds {
		spec := must[registry.ToolSpec](t)(registry.ToolSpec{Name: fmt.Sprintf("tool%d", i)}.Normalize())
		registrytest.NewDevice(nil).Connect(t, pods[1], registry.Session{
			Key: registry.Key{Tenant: tenant, Session: fmt.Sprintf("s%d", i)},
		}, spec)
	}
	for i := range rounds {
		if _, err := server.Command("FLUSHALL"); err != nil {
			t.Fatal(err)
		}
		key, name := registry.Key{Tenant: tenant, Session: fmt.Sprintf("s%d", i)}, fmt.Sprintf("tool%d", i)
		for _, target := range []registry.Target{{SessionID: key.Session}, {}} {
			for deadline := time.Now().Add(time.Minute); ; {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				route, err := pods[0].Router.Resolve(ctx, tenant, name, target, registry.SelectNone)
				if err == nil {
					_, err = pods[0].Router.Call(ctx, registry.Call{
						ID: registry.NewCallID(), Route: route, Args: registry.MustJSON(`{}`), Timeout: 5 * time.Second,
					})
				}
				cancel()
				if err == nil {
					break
				}
				e := registry.AsError(err)
				if e.Code != registry.CodeStoreUnavailable || e.Dispatched != registry.DispatchedNo ||
					e.RetryAfter == 0 {
					t.Fatalf("round %d, %+v: %v", i, target, err)
				}
				pause := time.NewTimer(5 * time.Millisecond)
				<-pause.C
				if time.Now().After(deadline) {
					t.Fatalf("round %d: still %v", i, err)
				}
			}
		}
	}
	for deadline := time.Now().Add(20 * time.Second); ; {
		nobody := registry.Target{SessionID: "nobody"}
		_, err := pods[0].Router.Resolve(t.Context(), tenant, "tool0", nobody, registry.SelectNone)
		if errors.Is(err, registry.CodeSessionNotFound) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

package routing

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// memoryStore is a Memory, or something around one.
type memoryStore interface {
	registry.Store
	NewBus() *memory.Bus
}

// startPod starts a pod on the store and closes it when the test ends. In a synctest bubble all of it runs there.
func startPod(t *testing.T, store memoryStore, id string, change ...func(*PodConfig)) *Pod {
	t.Helper()
	bus := store.NewBus()
	cfg := PodConfig{ID: id, Store: store, Bus: bus}
	for _, c := range change {
		c(&cfg)
	}
	pod, err := NewPod(cfg)
	if err == nil {
		err = pod.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Limit)
		defer cancel()
		if err := errors.Join(pod.Close(ctx), bus.Close(ctx)); err != nil {
			t.Errorf("close pod: %v", err)
		}
	})
	return pod
}

// testTool is a tool that takes anything.
func testTool(t *testing.T, name string) registry.ToolSpec {
	t.Helper()
	spec, err := registry.ToolSpec{Name: name}.Normalize()
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// connect opens session s of tenant t with the tools "tool" and more.
func connect(t *testing.T, pod *Pod, c Conn, change func(*registry.Session), more ...registry.ToolSpec) *LocalSession {
	t.Helper()
	s := registry.Session{Key: registry.Key{Tenant: "t", Session: "s"}}
	if change != nil {
		change(&s)
	}
	l, _, err := pod.Hub.Open(t.Context(), s, c)
	if held := (*registry.Held)(nil); errors.As(err, &held) {
		l, err = pod.Hub.Replace(t.Context(), s, c, held.Holder, true)
	}
	if err == nil {
		err = l.PutTools(t.Context(), append(more, testTool(t, "tool")), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// callResult is what a call came to.
type callResult struct {
	res registry.Result
	err error
}

// begin makes a call of "tool" in a goroutine of its own.
func begin(
	t *testing.T, pod *Pod, s registry.Session, id string, timeout time.Duration, change ...func(*registry.Call),
) <-chan callResult {
	t.Helper()
	rec := registry.NewRecord(id, s.Tenant, "tool", json.RawMessage(`{}`))
	rec.SessionID = s.Key.Session
	c := registry.Call{ID: id, Route: registry.Route{Session: s, Spec: testTool(t, "tool")},
		Args: registry.MustJSON(`{}`), Timeout: timeout, Record: &rec}
	for _, ch := range change {
		ch(&c)
	}
	ended := make(chan callResult, 1)
	ctx := t.Context()
	go func() {
		res, err := pod.Router.Call(ctx, c)
		if !c.Durable {
			pod.Calls.Finish(&rec, res, err)
		}
		ended <- callResult{res, err}
	}()
	return ended
}

package farhand_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// factoryTool returns a tool without parameters of a factory.
func factoryTool(t *testing.T, name string, run func(ctx context.Context) (any, error)) agent.Tool {
	t.Helper()
	tool, err := farhand.NewTool(name, "A tool of the program.", func(ctx context.Context, _ struct{}) (any, error) {
		return run(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
	return tool
}

// A tool of the program that opens the workspace, and does not say that it keeps something, takes part in its turn like
// any other: the tools after it work in the same folder.
func TestAToolOfTheProgramOpensTheWorkspaceOfItsTurn(t *testing.T) {
	h := newHome(t, nil, func(c *farhand.Config) { c.Builtins = []string{"write", "read"} },
		farhand.WithToolFactory(agent.Registration{
			Names: []string{"look"}, Make: func(sc agent.SessionContext) []agent.Tool {
				return []agent.Tool{factoryTool(t, "look", func(ctx context.Context) (any, error) {
					_, err := sc.Workspace.Open(ctx)
					return "opened", err
				})}
			},
		}))
	calls := h.turn(h.keys["admin main"], "main", "look", `{}`, "write", `{"path":"a.txt","content":"kept"}`,
		"read", `{"path":"a.txt"}`)
	if len(calls) != 3 {
		t.Fatalf("calls: %+v", calls)
	}
	for _, c := range calls {
		if c.Status != "completed" {
			t.Errorf("%+v", c)
		}
	}
}

// counting counts its calls in the memory of its agent session.
func counting(t *testing.T) agent.Registration {
	return agent.Registration{Names: []string{"count"}, Make: func(sc agent.SessionContext) []agent.Tool {
		return []agent.Tool{factoryTool(t, "count", func(ctx context.Context) (any, error) {
			n := 0
			err := sc.Memory.Update(ctx, func(values map[string]json.RawMessage) error {
				n, _ = strconv.Atoi(string(values["calls"])) // zero if there is none
				n++
				values["calls"] = json.RawMessage(strconv.Itoa(n))
				return nil
			})
			return strconv.Itoa(n), err
		})}
	}}
}

// The memory is of a user in a conversation, and ends with the conversation. Calls outside of conversations have
// another, of their identity.
func TestMemoryOfAConversation(t *testing.T) {
	h := newHome(t, nil, func(*farhand.Config) {}, farhand.WithToolFactory(counting(t)))
	said := func(key, in, want string) {
		t.Helper()
		if calls := h.turn(h.keys[key], in, "count", `{}`); len(calls) != 1 ||
			strings.Trim(calls[0].Output, "`\n") != want {
			t.Errorf("%s in %s: %+v, want %s", key, in, calls, want)
		}
	}
	said("admin main", "main", "1")
	said("admin main", "main", "2")
	said("admin main", "group sandboxed", "1") // nothing of it leaves the sandbox
	for _, want := range []string{"1", "2"} {
		if got := h.call(h.keys["caller main"], "count", `{}`, false); got.Output != want {
			t.Errorf("a call: %+v, want %s", got, want)
		}
	}
	if got := h.call(h.keys["admin main"], "count", `{}`, false); got.Output != "1" {
		t.Errorf("a call of another identity: %+v", got)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, h.url+"/api/sessions/phone", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		t.Fatalf("delete: %s", resp.Status)
	}
	h.device(nil)
	said("admin main", "main", "1")
}

// forgetful is a store that can fail to erase the memories of tools.
type forgetful struct {
	*memory.Store
	fails atomic.Bool
}

func (s *forgetful) EraseToolMemories(ctx context.Context, of registry.Key, life time.Duration) error {
	if s.fails.Load() {
		return registry.StoreUnavailable("erase memories", errors.New("away"))
	}
	return s.Store.EraseToolMemories(ctx, of, life)
}

// A conversation is not deleted while the memories of its tools would stay readable, and can be deleted later.
func TestNoDeletionWithoutThatOfTheMemories(t *testing.T) {
	store := &forgetful{Store: memory.New(memory.Options{})}
	h := newHome(t, nil, func(*farhand.Config) {}, farhand.WithToolFactory(counting(t)),
		farhand.WithStore(store, store.NewBus()))
	for i, status := range []int{http.StatusServiceUnavailable, http.StatusNoContent} {
		h.turn(h.keys["admin main"], "main", "count", `{}`)
		store.fails.Store(status != http.StatusNoContent)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, h.url+"/api/sessions/phone", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+adminToken)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		left, err := store.CountMessages(t.Context(), registry.Key{Tenant: registry.DefaultTenant, Session: "phone"})
		if resp.StatusCode != status || err != nil || (left > 0) != (status != http.StatusNoContent) {
			t.Errorf("deletion %d: %s, %d messages, %v", i, resp.Status, left, err)
		}
	}
}

// The values of a memory are those of encoding/json; what cannot be kept is refused, and changes nothing.
func TestValuesOfAMemory(t *testing.T) {
	type place struct{ City string }
	tool := agent.Registration{Names: []string{"check"}, Make: func(sc agent.SessionContext) []agent.Tool {
		return []agent.Tool{factoryTool(t, "check", func(ctx context.Context) (any, error) {
			m, at := sc.Memory, place{}
			if found, err := m.Get(ctx, "home", &at); found || err != nil {
				t.Errorf("before: %v, %v", found, err)
			}
			for _, err := range []error{
				m.Set(ctx, "home", place{"Wien"}), m.Set(ctx, "old", 1), m.Delete(ctx, "old", "none"),
			} {
				if err != nil {
					t.Error(err)
				}
			}
			for name, err := range map[string]error{
				"no key": m.Set(ctx, "", 1), "a long key": m.Set(ctx, strings.Repeat("k", 129), 1),
				"a key that is no text": m.Set(ctx, "\xff", 1), "no JSON": m.Set(ctx, "a", func() {}),
				"raw text": m.Update(ctx, func(values map[string]json.RawMessage) error {
					values["home"] = json.RawMessage("Graz")
					return nil
				}),
				"another type": errOnly(m.Get(ctx, "home", new(int))),
			} {
				if err == nil {
					t.Errorf("%s: it was taken", name)
				}
			}
			large := m.Set(ctx, "large", strings.Repeat("x", registry.MaxToolMemory))
			if !errors.Is(large, registry.CodePayloadTooLarge) {
				t.Errorf("a large value: %v", large)
			}
			if found, err := m.Get(ctx, "home", &at); !found || err != nil || at.City != "Wien" {
				t.Errorf("after: %+v, %v, %v", at, found, err)
			}
			keys, err := m.Keys(ctx)
			return strings.Join(keys, " "), err
		})}
	}}
	url := start(t, farhand.Config{}, farhand.WithToolFactory(tool))
	if _, got := send(t, url+"/api/tools/check/call", `{}`, ""); !strings.Contains(got, `"output":"home"`) {
		t.Error(got)
	}
}

func errOnly[T any](_ T, err error) error { return err }

package loopguard_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/chat/loopguard"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/registrytest"
	"github.com/farhand/farhand/registry/routing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stores are the ways of two pods to the store that keeps their trails.
type stores [2]loopguard.Store

// onEachStore runs a test with each store a fleet may have.
func onEachStore(t *testing.T, test func(t *testing.T, s stores)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		m := memory.New(memory.Options{})
		test(t, stores{m, m})
	})
	t.Run("redis", func(t *testing.T) {
		url := redistest.Single(t)
		test(t, stores{dial(t, url), dial(t, url)})
	})
}

func dial(t *testing.T, url string) loopguard.Store {
	t.Helper()
	conn, err := redisstore.Dial(t.Context(), redisstore.Options{URL: url, Timeout: testkit.Limit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.Store()
}

// conversation is a conversation with a device, guarded.
type conversation struct {
	*testing.T
	invokers []*agent.Invoker // of pods that share the history
	device   *registrytest.Device
	key      registry.Key // of the conversation, which is no other conversation's
	store    loopguard.Store

	directory agent.SessionDirectory
	policy    *agent.Policy
	made      int // calls

	mu      sync.Mutex
	outputs map[string]string // what a tool of the device says; else its arguments
}

var anna = auth.Identity{Tenant: "default", User: "anna"}

func newConversation(t *testing.T, s stores, cfg loopguard.Config, custom ...agent.Hook) *conversation {
	t.Helper()
	k := &conversation{T: t, key: registry.Key{Tenant: "default", Session: rand.Text()},
		outputs: make(map[string]string)}
	store := memory.New(memory.Options{})
	k.store, k.directory = s[0], store
	policy, err := agent.NewPolicy(agent.PolicyRules{CallDeny: []string{"denied"}})
	k.must(err)
	k.policy = policy
	var pods []*routing.Pod
	for i := range s {
		cfg.Store = s[i]
		bus := store.NewBus()
		pod, err := routing.NewPod(routing.PodConfig{Store: store, Bus: bus})
		k.must(err)
		k.must(pod.Start(t.Context()))
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), testkit.Limit)
			defer cancel()
			k.must(errors.Join(pod.Close(ctx), bus.Close(ctx)))
		})
		pods = append(pods, pod)
		k.invokers = append(k.invokers, agent.NewInvoker(agent.Config{
			Router: pod.Router, CallLog: pod.Calls, Policy: policy, Guards: []agent.Hook{loopguard.New(cfg)},
			Hooks: custom,
		}))
	}
	k.device = registrytest.NewDevice(k.answer)
	var specs []registry.ToolSpec
	for _, name := range []string{"x", "y", "z", "denied"} {
		parameters := json.RawMessage(`{"properties":{"n":{"type":"number"}}}`)
		spec, err := registry.ToolSpec{Name: name, Parameters: parameters}.Normalize()
		k.must(err)
		specs = append(specs, spec)
	}
	k.device.Connect(t, pods[0], registry.Session{Key: k.key, UserID: "anna"}, specs...)
	return k
}

func (k *conversation) must(err error) {
	k.Helper()
	if err != nil {
		k.Fatal(err)
	}
}

func (k *conversation) answer(c routing.DeviceCall) *registry.Result {
	k.mu.Lock()
	defer k.mu.Unlock()
	if said, ok := k.outputs[c.Tool]; ok {
		return &registry.Result{Success: said != "fails", Output: said}
	}
	return &registry.Result{Success: true, Output: c.Args.String()}
}

// say has a tool answer with the text from now on.
func (k *conversation) say(tool, text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.outputs[tool] = text
}

// call makes one call of the conversation, at one pod and the other in turn.
func (k *conversation) call(tool, args string, change ...func(*agent.Request)) (agent.Outcome, error) {
	req := agent.Request{
		Caller: anna, Tool: tool, Args: registry.MustJSON(args), Target: registry.Target{SessionID: k.key.Session},
		Conversation: k.key, Turn: "t",
	}
	for _, c := range change {
		c(&req)
	}
	k.made++
	return k.invokers[k.made%2].Invoke(k.Context(), req)
}

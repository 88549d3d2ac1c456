package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/registrytest"
	"github.com/farhand/farhand/registry/routing"
)

const testTimeout = testkit.Limit

// fixture is a pod on a store of its own, with an invoker in front.
type fixture struct {
	*testing.T
	store   *memory.Store
	pod     *routing.Pod
	policy  *agent.Policy
	invoker *agent.Invoker
}

func newFixture(t *testing.T, rules agent.PolicyRules, change ...func(*agent.Config)) *fixture {
	t.Helper()
	h := &fixture{T: t, store: memory.New(memory.Options{}), policy: newPolicy(t, rules)}
	bus := h.store.NewBus()
	var err error
	if h.pod, err = routing.NewPod(routing.PodConfig{Store: h.store, Bus: bus}); err != nil {
		t.Fatal(err)
	}
	if err := h.pod.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := errors.Join(h.pod.Close(ctx), bus.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	cfg := agent.Config{Router: h.pod.Router, CallLog: h.pod.Calls, Policy: h.policy}
	for _, c := range change {
		c(&cfg)
	}
	h.invoker = agent.NewInvoker(cfg)
	return h
}

// connect opens a session of a user whose tools answer with the session's id.
func (h *fixture) connect(session, user string, tools ...string) *routing.LocalSession {
	h.Helper()
	var specs []registry.ToolSpec
	for _, name := range tools {
		specs = append(specs, spec(name, ""))
	}
	device := registrytest.NewDevice(func(routing.DeviceCall) *registry.Result {
		return &registry.Result{Success: true, Output: "from " + session}
	})
	return device.Connect(h, h.pod, registry.Session{Key: registry.Key{Tenant: "default", Session: session},
		UserID: user}, specs...)
}

// wait returns the record of a call once it is final.
func (h *fixture) wait(id string) registry.Record {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), testTimeout)
	defer cancel()
	for {
		rec, err := h.pod.Calls.Get(ctx, "default", id)
		if err == nil && rec.State.Final() {
			return rec
		}
		if ctx.Err() != nil {
			h.Fatalf("record of %s: %+v, %v", id, rec, err)
		}
		// it is written in batches
		if _, err := h.store.ReadActivity(ctx, "default", "", 1, 10*time.Millisecond); err != nil {
			h.Fatal(err)
		}
	}
}

// localTool is a tool made of a function.
type localTool struct {
	registry.ToolSpec
	execute func(ctx context.Context, args json.RawMessage) (registry.Result, error)
}

func (t localTool) Spec() registry.ToolSpec { return t.ToolSpec }

func (t localTool) Execute(ctx context.Context, args json.RawMessage) (registry.Result, error) {
	return t.execute(ctx, args)
}

// says is a tool that always says the same.
func says(name, text string) localTool {
	return localTool{spec(name, ""), func(context.Context, json.RawMessage) (registry.Result, error) {
		return registry.Result{Success: true, Output: text}, nil
	}}
}

// registration announces tools and makes them.
func registration(tools ...agent.Tool) agent.Registration {
	r := agent.Registration{Make: func(agent.SessionContext) []agent.Tool { return tools }}
	for _, t := range tools {
		r.Names = append(r.Names, t.Spec().Name)
	}
	return r
}

func localTools(t *testing.T, regs ...agent.Registration) *agent.LocalTools {
	t.Helper()
	box, err := agent.NewLocalTools(regs...)
	if err != nil {
		t.Fatal(err)
	}
	return box
}

// see returns what a view shows, as "model name=tool@source".
func see(t *testing.T, v *agent.ToolSet) []string {
	t.Helper()
	tools, err := v.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := make([]string, len(tools))
	for i, tool := range tools {
		seen[i] = tool.ModelName + "=" + tool.Spec.Name + "@" + tool.Source
	}
	return seen
}

func of(session string) agent.SessionContext {
	return agent.SessionContext{
		Key: registry.Key{Tenant: "default", Session: session}, Caller: auth.Identity{Tenant: "default", User: "anna"},
	}
}

func TestViewFollowsItsSession(t *testing.T) {
	h := newFixture(t, agent.PolicyRules{CallDeny: []string{"secret*"}})
	toolSets := agent.NewToolSets(agent.ToolSetsConfig{
		Invoker: h.invoker, Directory: h.store, Policy: h.policy,
		LocalTools: localTools(t, registration(says("zeit", "noon"), says("secret_clock", "never"),
			says("alpha", "a"))),
	})
	v := toolSets.Open(of("phone"))
	local := []string{"alpha=alpha@builtin", "zeit=zeit@builtin"}
	if got := see(t, v); !slices.Equal(got, local) {
		t.Errorf("without a device: %v", got)
	}
	l := h.connect("phone", "anna", "torch", "camera.snap", "secret_diary")
	h.connect("tablet", "anna", "draw")
	want := append(slices.Clone(local), "camera_snap=camera.snap@remote:phone", "torch=torch@remote:phone")
	if got := see(t, v); !slices.Equal(got, want) {
		t.Errorf("with a device: %v", got)
	}
	out, err := v.Invoke(t.Context(), agent.InvokeRequest{ModelName: "camera_snap", Turn: "turn-7"})
	if err != nil || out.Result.Output != "from phone" {
		t.Fatalf("%+v, %v", out, err)
	}
	if rec := h.wait(out.CallID); rec.Tool != "camera.snap" || rec.SessionID != "phone" || rec.Turn != "turn-7" ||
		rec.Source != "" {
		t.Errorf("record %+v", rec)
	}
	if err := l.PutTools(t.Context(), nil, []string{"torch"}); err != nil {
		t.Fatal(err)
	}
	// The model still believes in the torch.
	out, err = v.Invoke(t.Context(), agent.InvokeRequest{ModelName: "torch"})
	wantCode(t, err, registry.CodeToolNotFound)
	if rec := h.wait(out.CallID); rec.State != registry.StateRejected || rec.Tool != "torch" {
		t.Errorf("record %+v", rec)
	}
	if got := see(t, v); !slices.Equal(got, want[:3]) {
		t.Errorf("without the torch: %v", got)
	}
	l.Close(t.Context())
	if got := see(t, v); !slices.Equal(got, local) {
		t.Errorf("after the device has gone: %v", got)
	}
	if got := see(t, toolSets.Open(of(""))); !slices.Equal(got, local) {
		t.Errorf("without a session: %v", got)
	}
}

func TestViewOfOtherSessions(t *testing.T) {
	h := newFixture(t, agent.PolicyRules{})
	h.connect("phone", "anna", "camera.snap", "time")
	h.connect("tablet", "anna", "camera.snap", "camera_snap", "draw")
	h.connect("stranger", "bob", "listen")
	toolSets := agent.NewToolSets(agent.ToolSetsConfig{
		Invoker: h.invoker, Directory: h.store, Policy: h.policy, OtherSessions: true,
		LocalTools: localTools(t, registration(says("time", "noon"))),
	})
	v := toolSets.Open(of("phone"))
	got := see(t, v)
	if len(got) != 6 || got[0] != "time=time@builtin" || got[1] != "camera_snap=camera.snap@remote:phone" ||
		got[5] != "draw=draw@remote:tablet" {
		t.Fatalf("tools %v", got)
	}
	if again := see(t, v); !slices.Equal(got, again) {
		t.Errorf("names change: %v, %v", got, again)
	}
	for i, want := range map[int]string{2: "from phone", 3: "from tablet", 4: "from tablet", 5: "from tablet",
		0: "noon"} {
		name, _, _ := strings.Cut(got[i], "=")
		if i >= 2 && i <= 4 && !strings.Contains(name, "__") {
			t.Errorf("%s should have a suffix", got[i])
		}
		if out, err := v.Invoke(t.Context(), agent.InvokeRequest{ModelName: name}); err != nil ||
			out.Result.Output != want {
			t.Errorf("%s: %+v, %v", got[i], out, err)
		}
	}
	group := of("phone")
	group.Kind = agent.ContextGroup
	if got := see(t, toolSets.Open(group)); len(got) != 3 {
		t.Errorf("a group sees %v", got)
	}
	// Without a name in the credentials, the user is whom the device names.
	anonymous := of("phone")
	anonymous.Caller.User = ""
	if got := see(t, toolSets.Open(anonymous)); len(got) != 6 {
		t.Errorf("anonymous sees %v", got)
	}
}

// A tool that comes while a model answers does not take over the name of the one the model was told of.
func TestNamesMeanWhatWasShown(t *testing.T) {
	h := newFixture(t, agent.PolicyRules{})
	l := h.connect("phone", "anna", "camera.snap")
	v := agent.NewToolSets(agent.ToolSetsConfig{Invoker: h.invoker, Directory: h.store,
		Policy: h.policy}).Open(of("phone"))
	see(t, v)
	if err := l.PutTools(t.Context(), []registry.ToolSpec{spec("camera_snap", ""), spec("torch", "")},
		nil); err != nil {
		t.Fatal(err)
	}
	for name, tool := range map[string]string{"torch": "torch", "camera_snap": "camera.snap"} {
		out, err := v.Invoke(t.Context(), agent.InvokeRequest{ModelName: name})
		if err != nil {
			t.Fatal(err)
		}
		if rec := h.wait(out.CallID); rec.Tool != tool {
			t.Errorf("%s called %s", name, rec.Tool)
		}
	}
}

func TestUnknownToolIsOnRecord(t *testing.T) {
	var trace []string
	var seen agent.Invocation
	h := newFixture(t, agent.PolicyRules{}, func(c *agent.Config) {
		c.Hooks = []agent.Hook{hook{name: "see", trace: &trace,
			after: func(inv agent.Invocation, _ agent.Outcome, _ error) { seen = inv }}}
	})
	h.connect("other", "bob", "listen") // of the same tenant, but no tool of this view
	var names []string
	for i := range 200 {
		names = append(names, fmt.Sprintf("tool_%03d_with_a_long_name", i))
	}
	h.connect("phone", "anna", names[:100]...)
	v := agent.NewToolSets(agent.ToolSetsConfig{Invoker: h.invoker, Directory: h.store,
		Policy: h.policy}).Open(of("phone"))
	for _, name := range []string{"listen", strings.Repeat("ü", 5000), "", "\xff"} {
		out, err := v.Invoke(t.Context(), agent.InvokeRequest{ModelName: name, Args: registry.MustJSON(`{"a":1}`)})
		e := wantCode(t, err, registry.CodeToolNotFound)
		if len(e.Message) > 2000 || !strings.Contains(e.Message, "tool_000") || !strings.Contains(e.Message, "more") {
			t.Errorf("%d bytes: %s", len(e.Message), e.Message)
		}
		if rec := h.wait(out.CallID); rec.Err == nil || rec.Err.Code != registry.CodeToolNotFound ||
			rec.State != registry.StateRejected || len(rec.Tool) > 64 {
			t.Errorf("record %+v", rec)
		}
		if seen.CallID != out.CallID || seen.Source != "" || seen.Conversation.Session != "phone" {
			t.Errorf("hooks see %+v", seen)
		}
	}
	// So are arguments that are no JSON, which models do write.
	out, err := v.Invoke(t.Context(), agent.InvokeRequest{ModelName: "tool_001_with_a_long_name",
		Args: registry.MustJSON(`["a"]`)})
	wantCode(t, err, registry.CodeInvalidRequest)
	if rec := h.wait(out.CallID); rec.State != registry.StateRejected {
		t.Errorf("record %+v", rec)
	}
}

// brokenDirectory is a store that is away.
type brokenDirectory struct{ registry.Directory }

func (brokenDirectory) Entry(context.Context, registry.Key) (registry.Entry, error) {
	return registry.Entry{}, registry.StoreUnavailable("entry", errors.New("gone"))
}

func TestViewOfABrokenStore(t *testing.T) {
	h := newFixture(t, agent.PolicyRules{})
	v := agent.NewToolSets(agent.ToolSetsConfig{Invoker: h.invoker, Directory: brokenDirectory{},
		Policy: h.policy}).Open(of("phone"))
	_, err := v.Tools(t.Context())
	wantCode(t, err, registry.CodeStoreUnavailable)
	_, err = v.Invoke(t.Context(), agent.InvokeRequest{ModelName: "torch"})
	wantCode(t, err, registry.CodeStoreUnavailable)
}

package agent_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/registry"
)

// names returns the names of tools.
func names(tools []agent.Tool) []string {
	var all []string
	for _, t := range tools {
		all = append(all, t.Spec().Name)
	}
	return all
}

func TestToolboxRefuses(t *testing.T) {
	good := registration(says("a", ""), says("b", ""))
	for name, tt := range map[string]struct {
		regs []agent.Registration
		says string
	}{
		"a name twice": {[]agent.Registration{good, registration(says("b", ""))}, `"b" is registered twice`},
		"a name twice in one": {[]agent.Registration{{Names: []string{"x", "x"}, Make: good.Make}},
			`"x" is registered twice`},
		"a bad name":   {[]agent.Registration{{Names: []string{"1 x"}, Make: good.Make}}, `"1 x"`},
		"no name":      {[]agent.Registration{{Make: good.Make}}, "needs names"},
		"a look-alike": {[]agent.Registration{good, registration(says("B", ""))}, `"B" looks like`},
		"no factory":   {[]agent.Registration{{Names: []string{"x"}}}, "factory"},
	} {
		if _, err := agent.NewLocalTools(tt.regs...); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whoever embeds the gateway reads everything that is wrong at once.
func TestToolboxTellsEveryError(t *testing.T) {
	_, err := agent.NewLocalTools(agent.Registration{Names: []string{"x"}}, registration(says("a", "")),
		registration(says("a", "")), registration(says("А", ""))) // the last one is Cyrillic
	for _, want := range []string{`"x"`, `"a" is registered twice`, `"А"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}

// A factory learns where its agent session lives, and what was registered with it.
func TestFactoryLearnsItsSetting(t *testing.T) {
	var got []agent.SessionContext
	box := localTools(t, agent.Registration{Names: []string{"x"}, Optional: true,
		Make: func(sc agent.SessionContext) []agent.Tool {
			got = append(got, sc)
			return nil
		}}).WithSetting(agent.Setting{AgentID: "helper", AgentDir: "/agent", Workspaces: spaces{}})
	key := registry.Key{Tenant: "t", Session: "phone"}
	anna := auth.Identity{Tenant: "t", User: "anna"}
	group := auth.Identity{Tenant: "t", User: "anna", Context: string(agent.ContextSandboxed)}
	for _, sc := range []agent.SessionContext{{Key: key, Caller: anna}, {Key: key, Caller: group},
		{Key: key, Caller: anna, Kind: agent.ContextSandboxed}, {Key: key, Caller: anna, Stateless: true},
		{Caller: anna}} {
		if _, err := box.For(sc); err != nil {
			t.Fatal(err)
		}
	}
	conversation := agent.SessionID{Tenant: "t", Conversation: "phone", Identity: "anna"}
	boxed := agent.SessionID{Tenant: "t", Conversation: "phone", Identity: "anna", Sandboxed: true}
	alone := agent.SessionID{Tenant: "t", Identity: "user:anna"}
	for i, want := range []agent.SessionID{conversation, boxed, boxed, alone, alone} {
		sc := got[i]
		if sc.AgentID != "helper" || sc.AgentDir != "/agent" || sc.Workspace != space(want) ||
			sc.Sandboxed != want.Sandboxed {
			t.Errorf("%d: %+v", i, sc)
		}
	}
}

// spaces knows a workspace of every agent session.
type spaces struct{}

func (spaces) Find(id agent.SessionID, _ registry.Place) agent.Workspace { return space(id) }

type space agent.SessionID

func (space) Open(context.Context) (sandbox.Workspace, error) { return sandbox.Workspace{}, nil }

func TestToolboxSelects(t *testing.T) {
	all := localTools(t, registration(says("b", ""), says("a", "")), registration(says("c", "")))
	if got := all.Names(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("names %v", got)
	}
	some, err := all.Select("c", "a", "a")
	if err != nil {
		t.Fatal(err)
	}
	tools, err := some.For(agent.SessionContext{})
	if got := names(tools); err != nil || !slices.Equal(got, []string{"a", "c"}) || some.IsEnabled("b") ||
		!all.IsEnabled("b") {
		t.Errorf("selected %v, %v", got, err)
	}
	if specs := some.Specs(); len(specs) != 2 || specs[0].Name != "a" ||
		string(specs[0].Parameters) != `{"type":"object"}` {
		t.Errorf("specs %+v", specs)
	}
	if _, err := all.Select("a", "clock"); err == nil || !strings.Contains(err.Error(), `"clock"`) ||
		!strings.Contains(err.Error(), "a, b, c") {
		t.Errorf("unknown name: %v", err)
	}
	some = localTools(t, registration(says("b", "")), agent.Registration{Names: []string{"c"}, Optional: true,
		Make: func(agent.SessionContext) []agent.Tool { return nil }})
	if left, err := some.Without(some.Names(), "c"); err != nil || !slices.Equal(left, []string{"b"}) {
		t.Errorf("without c: %v, %v", left, err)
	}
	for off, want := range map[string]string{"b": "not optional", "x": `no tool "x"`} {
		if _, err := some.Without(some.Names(), off); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without %s: %v", off, err)
		}
	}
	none, err := all.Select()
	if err != nil || len(none.Names()) != 0 || len(none.Specs()) != 0 {
		t.Errorf("nothing selected: %v, %v", none.Names(), err)
	}
}

// What is wrong with one factory keeps nothing from the session but its own tools.
func TestToolboxSurvivesFactories(t *testing.T) {
	makes := func(tools ...agent.Tool) agent.Factory {
		return func(agent.SessionContext) []agent.Tool { return tools }
	}
	for name, tt := range map[string]struct {
		reg  agent.Registration
		want []string
		says string // empty: nothing to be told of
	}{
		"panics": {agent.Registration{Names: []string{"x"},
			Make: func(agent.SessionContext) []agent.Tool { panic("boom") }, Optional: true}, nil, "boom"},
		"makes another": {agent.Registration{Names: []string{"x"}, Make: makes(says("x", ""), says("y", ""))},
			[]string{"x"}, `"y"`},
		"makes one twice": {agent.Registration{Names: []string{"x"}, Make: makes(says("x", ""), says("x", ""))},
			[]string{"x"}, `"x"`},
		"makes nil": {agent.Registration{Names: []string{"x"}, Make: makes(nil, says("x", ""))}, []string{"x"},
			"nil tool"},
		"makes nonsense": {agent.Registration{Names: []string{"x"},
			Make: makes(localTool{ToolSpec: registry.ToolSpec{Name: "x", Parameters: []byte("[]")}})}, nil,
			"parameters"},
		"makes none": {agent.Registration{Names: []string{"x", "y"}, Make: makes(says("x", ""))}, []string{"x"},
			`"y" did not return the tool`},
		"makes none, may": {agent.Registration{Names: []string{"x", "y"}, Make: makes(says("x", "")), Optional: true},
			[]string{"x"}, ""},
		"makes none at all": {agent.Registration{Names: []string{"x"}, Make: makes(), Optional: true}, nil, ""},
	} {
		tools, err := localTools(t, tt.reg, registration(says("good", ""))).For(agent.SessionContext{})
		want := append([]string{"good"}, tt.want...)
		if got := names(tools); !slices.Equal(got, want) {
			t.Errorf("%s: made %v, want %v", name, got, want)
		}
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

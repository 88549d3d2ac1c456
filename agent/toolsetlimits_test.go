package agent_test

import (
	"slices"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/auth"
	"github.com/farhand/farhand/registry"
)

// What needs a person's consent, or an administrator's, is no model's to call.
func TestViewLeavesOutWhatNeedsConsent(t *testing.T) {
	h := newFixture(t, agent.PolicyRules{CallDeny: []string{"secret"}})
	confirm, admin, secret := spec("pay", ""), spec("wipe", ""), spec("secret", "")
	confirm.SecurityLevel, admin.SecurityLevel, secret.SecurityLevel = registry.SecurityUserConfirm,
		registry.SecurityAdminOnly, registry.SecurityUserConfirm
	l := h.connect("phone", "anna", "torch")
	if err := l.PutTools(t.Context(), []registry.ToolSpec{confirm, admin, secret}, nil); err != nil {
		t.Fatal(err)
	}
	local := says("gate", "open")
	local.SecurityLevel = registry.SecurityUserConfirm
	cfg := agent.ToolSetsConfig{Invoker: h.invoker, Directory: h.store, Policy: h.policy,
		LocalTools: localTools(t, registration(local))}
	v := agent.NewToolSets(cfg).Open(of("phone"))
	if got, want := see(t, v), []string{"torch=torch@remote:phone"}; !slices.Equal(got, want) {
		t.Errorf("a model sees %v", got)
	}
	for _, name := range []string{"pay", "wipe", "gate"} {
		_, err := v.Invoke(t.Context(), agent.InvokeRequest{ModelName: name})
		wantCode(t, err, registry.CodeToolNotFound)
	}
	cfg.Unconfirmed = true
	v = agent.NewToolSets(cfg).Open(of("phone"))
	if got, want := see(t, v), []string{"gate=gate@builtin", "pay=pay@remote:phone",
		"torch=torch@remote:phone"}; !slices.Equal(got, want) {
		t.Errorf("unconfirmed, a model sees %v", got)
	}
	for tool, admin := range map[string]bool{"pay": false, "wipe": true} { // a program of a person's may
		_, err := h.invoker.Invoke(t.Context(), agent.Request{
			Caller: auth.Identity{Tenant: "default", Admin: admin}, Tool: tool,
			Target: registry.Target{SessionID: "phone"},
		})
		if err != nil {
			t.Errorf("%s over HTTP: %v", tool, err)
		}
	}
}

func TestViewOfSomebodyElsesDevice(t *testing.T) {
	h := newFixture(t, agent.PolicyRules{})
	h.connect("phone", "bob", "torch")
	h.connect("anybodys", "", "lamp")
	h.connect("tablet", "anna", "draw")
	for name, tt := range map[string]struct {
		caller, session string
		others          bool
		want            []string
	}{
		"another's":              {"anna", "phone", false, nil},
		"another's, with others": {"anna", "phone", true, []string{"draw=draw@remote:tablet"}},
		"nobody's":               {"anna", "anybodys", false, []string{"lamp=lamp@remote:anybodys"}},
		"nobody asks":            {"", "phone", false, []string{"torch=torch@remote:phone"}},
		"the own":                {"bob", "phone", false, []string{"torch=torch@remote:phone"}},
	} {
		v := agent.NewToolSets(agent.ToolSetsConfig{Invoker: h.invoker, Directory: h.store, Policy: h.policy,
			OtherSessions: tt.others})
		sc := of(tt.session)
		sc.Caller.User = tt.caller
		if got := see(t, v.Open(sc)); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

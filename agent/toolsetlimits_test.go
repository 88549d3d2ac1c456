package agent_test

import (
	"slices"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
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
	unconfirmed, err := policy.New(policy.Options{
		Lists: agent.PolicyRules{CallDeny: []string{"secret"}}, Unconfirmed: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(*agent.ToolSetsConfig){
		func(c *agent.ToolSetsConfig) { c.Policy = unconfirmed },
		func(c *agent.ToolSetsConfig) { c.Approvals = true },
	} {
		cfg := cfg
		change(&cfg)
		v := agent.NewToolSets(cfg).Open(of("phone"))
		want := []string{"gate=gate@builtin", "pay=pay@remote:phone", "torch=torch@remote:phone"}
		if got := see(t, v); !slices.Equal(got, want) {
			t.Errorf("with nobody to ask, or somebody, a model sees %v", got)
		}
	}
	for tool, who := range map[string]auth.Identity{ // a program of a person's may who could approve it
		"pay": {Tenant: "default", Roles: auth.RoleApprover}, "wipe": {Tenant: "default", Admin: true},
	} {
		if _, err := callPhone(t, h, who, tool); err != nil {
			t.Errorf("%s over HTTP: %v", tool, err)
		}
	}
	_, err = callPhone(t, h, auth.Identity{Tenant: "default", Roles: auth.RoleCaller}, "pay")
	wantCode(t, err, registry.CodeApprovalDenied)
	_, err = callPhone(t, h, auth.Identity{Tenant: "default", Roles: auth.RoleCaller}, "wipe")
	wantCode(t, err, registry.CodeForbidden)
}

func callPhone(t *testing.T, h *fixture, who auth.Identity, tool string) (agent.Outcome, error) {
	return h.invoker.Invoke(t.Context(), agent.Request{
		Caller: who, Tool: tool, Target: registry.Target{SessionID: "phone"},
	})
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

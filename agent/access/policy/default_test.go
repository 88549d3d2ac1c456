package policy_test

import (
	"errors"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/registry"
)

var (
	admin    = auth.Identity{Tenant: "default", Admin: true}
	approver = auth.Identity{Tenant: "default", Roles: auth.RoleApprover | auth.RoleCaller}
	device   = auth.Identity{Tenant: "default", Roles: auth.RoleDevice}
	caller   = auth.Identity{Tenant: "default", Roles: auth.RoleCaller}
)

// asked is a question with what a test varies.
func asked(who auth.Identity, tool string, level registry.SecurityLevel, in policy.Context,
	model bool) policy.Question {
	return policy.Question{
		Who: who, Tool: registry.ToolSpec{Name: tool, SecurityLevel: level}, Context: in, Model: model,
		Source: policy.Builtin,
	}
}

func TestDefaults(t *testing.T) {
	p := newPolicy(t, policy.Options{})
	const (
		yes  = ""
		asks = "asks"
	)
	for _, tt := range []struct {
		q    policy.Question
		want string // yes, asks, or the code of the refusal
		rule string // that refuses or asks
	}{
		{asked(caller, "read", "", policy.Main, false), yes, ""},
		{asked(device, "write", "", policy.Sandboxed, true), yes, ""},
		{asked(auth.Identity{Roles: auth.RoleApprover}, "edit", "", "", false), "forbidden", "default:files"},
		{asked(admin, "exec", "", policy.Main, true), yes, ""},
		{asked(caller, "exec", "", policy.Main, true), asks, "default:programs"},
		{asked(caller, "bash", "", policy.Sandboxed, false), asks, "default:programs"},
		{asked(admin, "bash", "", policy.Group, false), "policy_denied", "default:programs"},
		{asked(admin, "ЕХЕС", "", policy.Group, false), "policy_denied", "default:programs"},
		{asked(admin, "wipe", registry.SecurityAdminOnly, "", false), yes, ""},
		{asked(admin, "wipe", registry.SecurityAdminOnly, "", true), "policy_denied", policy.RuleAdminOnly},
		{asked(approver, "wipe", registry.SecurityAdminOnly, "", false), "forbidden", policy.RuleAdminOnly},
		{asked(caller, "pay", registry.SecurityUserConfirm, "", false), asks, "default:confirm-direct"},
		{asked(approver, "pay", registry.SecurityUserConfirm, "", false), yes, ""},
		{asked(admin, "pay", registry.SecurityUserConfirm, "", true), asks, "default:confirm-model"},
		{asked(caller, "anything", "", policy.Group, true), yes, ""},
	} {
		d := p.Decide(tt.q)
		demand := d.Approval(0)
		switch tt.want {
		case yes:
			if !d.Allowed || demand != nil {
				t.Errorf("%s for %v in %q: %+v", tt.q.Tool.Name, tt.q.Who.RoleNames(), tt.q.Context, d)
			}
		case asks:
			if !d.Allowed || demand == nil || demand.Rule != tt.rule {
				t.Errorf("%s for %v in %q: %+v", tt.q.Tool.Name, tt.q.Who.RoleNames(), tt.q.Context, d)
			}
		default:
			if !errors.Is(d.Err(), registry.Code(tt.want)) || d.Rule != tt.rule {
				t.Errorf("%s for %v in %q: %+v", tt.q.Tool.Name, tt.q.Who.RoleNames(), tt.q.Context, d)
			}
		}
	}
	r := p.Decide(asked(admin, "exec", "", "", false)).Resources
	if r.MaxProcesses != 1 || r.MaxRuntime != 30*time.Second {
		t.Errorf("exec may use %+v", r)
	}
	if d := newPolicy(t, policy.Options{Unconfirmed: true}).Decide(
		asked(caller, "pay", registry.SecurityUserConfirm, "", true)); d.Approval(policy.ForeignArgument) != nil {
		t.Errorf("unconfirmed: %+v", d)
	}
	if d := p.Decide(asked(caller, "pay", "", "", true)); d.Approval(policy.ForeignArgument) == nil {
		t.Errorf("what a tool named is not asked about: %+v", d)
	}
}

// Nobody is asked about nodes beside the device's call that it makes, unless the tool is a device's of that name.
func TestDefaultsOfNodes(t *testing.T) {
	p := newPolicy(t, policy.Options{})
	for _, name := range []string{"nodes", "node-invoke", "canvas"} {
		q := asked(caller, name, "", policy.Main, true)
		if d := p.Decide(q); !d.Allowed || d.Approval(policy.Untrusted|policy.ForeignArgument) != nil {
			t.Errorf("%s: %+v", name, d)
		}
		q.Source = policy.Remote
		if d := p.Decide(q); d.Approval(policy.ForeignArgument) == nil {
			t.Errorf("%s of a device: %+v", name, d)
		}
	}
}

// What a conversation is goes by its channel and by the credentials, and neither takes back what the other says.
func TestContextsAreJoined(t *testing.T) {
	for _, tt := range []struct{ a, b, want policy.Context }{
		{"", "", policy.Main}, {policy.Group, "", policy.Group}, {policy.Main, policy.Group, policy.Group},
		{policy.Group, policy.Main, policy.Group}, {policy.Group, policy.Sandboxed, policy.Sandboxed},
		{policy.Sandboxed, "", policy.Sandboxed}, {"", "unheard of", policy.Group},
	} {
		if got := policy.Join(tt.a, tt.b); got != tt.want {
			t.Errorf("%q and %q are %q", tt.a, tt.b, got)
		}
	}
	member := caller
	member.Context = "group"
	q := asked(member, "exec", "", policy.Main, true)
	if d := newPolicy(t, policy.Options{}).Decide(q); d.Allowed {
		t.Errorf("the channel takes back what the credentials say: %+v", d)
	}
}

func TestScopesOfCredentials(t *testing.T) {
	p := newPolicy(t, policy.Options{})
	who := admin
	who.Tools = "camera.* time"
	for tool, want := range map[string]bool{"camera.snap": true, "time": true, "timer": false, "Time": false} {
		d, r := p.Decide(policy.Question{Who: who, Tool: registry.ToolSpec{Name: tool}}), p.MayRegister(who, tool)
		if d.Allowed != want || r.Allowed != want ||
			!want && (d.Rule != policy.RuleScope || r.Rule != policy.RuleScope) {
			t.Errorf("%s: %+v, registering %+v", tool, d, r)
		}
	}
}

func hints(readOnly, destructive, openWorld *bool) *registry.Annotations {
	return &registry.Annotations{ReadOnlyHint: readOnly, DestructiveHint: destructive, OpenWorldHint: openWorld}
}

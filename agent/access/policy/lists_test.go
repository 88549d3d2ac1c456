package policy_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/registry"
)

var anybody = auth.Identity{Tenant: "default", Roles: auth.RoleDevice | auth.RoleCaller}

func newPolicy(t *testing.T, o policy.Options) *policy.Policy {
	t.Helper()
	p, err := policy.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func named(tool string) policy.Question {
	return policy.Question{Who: anybody, Tool: registry.ToolSpec{Name: tool}}
}

func TestLists(t *testing.T) {
	for name, tt := range map[string]struct {
		allow, deny []string
		tool        string
		want        bool
	}{
		"no rules":                      {nil, nil, "anything", true},
		"allowed":                       {[]string{"camera.*"}, nil, "camera.snap", true},
		"not in the allow list":         {[]string{"camera.*"}, nil, "locate", false},
		"a prefix is no match":          {[]string{"camera"}, nil, "camera.snap", false},
		"second of the list":            {[]string{"a", "loc*"}, nil, "locate", true},
		"denied":                        {nil, []string{"danger.*"}, "danger.zone", false},
		"not denied":                    {nil, []string{"danger.*"}, "danger", true},
		"deny wins":                     {[]string{"*"}, []string{"*.delete"}, "files.delete", false},
		"deny wins over exact":          {[]string{"exec"}, []string{"e*"}, "exec", false},
		"question mark":                 {[]string{"t?"}, nil, "t1", true},
		"question mark is one":          {[]string{"t?"}, nil, "t12", false},
		"question mark is one letter":   {[]string{"t?"}, nil, "tю", true},
		"case matters to what allows":   {[]string{"exec"}, nil, "Exec", false},
		"but not to what denies":        {nil, []string{"exec"}, "Exec", false},
		"star takes every glyph":        {nil, []string{"a*z"}, "a.b_c-z", false},
		"stars take turns":              {nil, []string{"a*b*c"}, "aXbXbXc", false},
		"letters of another script":     {nil, []string{"exec*"}, "ехес_all", false},
		"an allow list is not fooled":   {[]string{"exec"}, nil, "ехес", false},
		"full width":                    {nil, []string{"exec"}, "ｅｘｅｃ", false},
		"another word of that script":   {nil, []string{"погода"}, "погоды", true},
		"the word itself":               {nil, []string{"погода"}, "погода", false},
		"rn is not m":                   {nil, []string{"time"}, "tirne", false},
		"what a list denies is no list": {nil, []string{"time"}, "timer", true},
	} {
		p := newPolicy(t, policy.Options{Lists: policy.Lists{CallAllow: tt.allow, CallDeny: tt.deny}})
		d := p.Decide(named(tt.tool))
		if d.Allowed != tt.want || d.Allowed == (d.Reason != "") || d.Allowed == (d.Rule != "") {
			t.Errorf("%s: %s: %+v", name, tt.tool, d)
		}
		if !d.Allowed && !errors.Is(d.Err(), registry.CodePolicyDenied) {
			t.Errorf("%s: %v", name, d.Err())
		}
		if !p.MayRegister(anybody, tt.tool).Allowed {
			t.Errorf("%s: rules for calling bind registering", name)
		}
		p = newPolicy(t, policy.Options{Lists: policy.Lists{RegisterAllow: tt.allow, RegisterDeny: tt.deny}})
		if d := p.MayRegister(anybody, tt.tool); d.Allowed != tt.want || !p.Decide(named(tt.tool)).Allowed {
			t.Errorf("%s: registering %s: %+v", name, tt.tool, d)
		}
	}
}

// A malformed pattern is an error at start in every list, also where its beginning already fails to match anything.
func TestMalformedPatterns(t *testing.T) {
	for _, glob := range []string{"[", "[]", "[a", "[a-", "a[", "*[", "zzz[a", `\`, "", "[-]", "a*b[c", "a b",
		strings.Repeat("ä", 129)} {
		for i, lists := range []policy.Lists{
			{RegisterAllow: []string{"ok", glob}}, {RegisterDeny: []string{glob}},
			{CallAllow: []string{glob}}, {CallDeny: []string{"ok", glob}},
		} {
			if _, err := policy.New(policy.Options{Lists: lists}); !errors.Is(err, registry.CodeInvalidRequest) {
				t.Errorf("list %d: %q: %v", i, glob, err)
			}
		}
	}
}

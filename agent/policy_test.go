package agent_test

import (
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
)

func TestPolicyNames(t *testing.T) {
	for name, tt := range map[string]struct {
		allow, deny []string
		tool        string
		want        bool
	}{
		"no rules":               {nil, nil, "anything", true},
		"allowed":                {[]string{"camera.*"}, nil, "camera.snap", true},
		"not in the allow list":  {[]string{"camera.*"}, nil, "locate", false},
		"a prefix is no match":   {[]string{"camera"}, nil, "camera.snap", false},
		"second of the list":     {[]string{"a", "loc*"}, nil, "locate", true},
		"denied":                 {nil, []string{"danger.*"}, "danger.zone", false},
		"not denied":             {nil, []string{"danger.*"}, "danger", true},
		"deny wins":              {[]string{"*"}, []string{"*.delete"}, "files.delete", false},
		"deny wins over exact":   {[]string{"exec"}, []string{"e*"}, "exec", false},
		"question mark":          {[]string{"t?"}, nil, "t1", true},
		"question mark is one":   {[]string{"t?"}, nil, "t12", false},
		"case matters":           {nil, []string{"exec"}, "Exec", true},
		"star takes every glyph": {nil, []string{"a*z"}, "a.b_c-z", false},
	} {
		p := newPolicy(t, agent.PolicyRules{CallAllow: tt.allow, CallDeny: tt.deny})
		if got := p.MayCall(tt.tool); got != tt.want {
			t.Errorf("%s: MayCall(%s) is %v", name, tt.tool, got)
		}
		if !p.MayRegister(tt.tool) {
			t.Errorf("%s: rules for calling bind registering", name)
		}
		p = newPolicy(t, agent.PolicyRules{RegisterAllow: tt.allow, RegisterDeny: tt.deny})
		if got := p.MayRegister(tt.tool); got != tt.want || !p.MayCall(tt.tool) {
			t.Errorf("%s: MayRegister(%s) is %v, MayCall %v", name, tt.tool, got, p.MayCall(tt.tool))
		}
	}
}

// What looks like a denied name, in letters of another script, is denied with it.
func TestDeniedLookAlikes(t *testing.T) {
	p := newPolicy(t, agent.PolicyRules{RegisterDeny: []string{"exec*", "погода"}})
	for name, want := range map[string]bool{"ехес": false, "ｅｘｅｃ": false, "ехес_all": false, "погода": false,
		"погоды": true, "Exec": true} {
		if got := p.MayRegister(name); got != want {
			t.Errorf("MayRegister(%s) is %v", name, got)
		}
	}
}

// A malformed pattern is an error at start in every list, also where its beginning already fails to match anything.
func TestMalformedGlobs(t *testing.T) {
	for _, glob := range []string{"[", "[]", "[a", "[a-", "a[", "*[", "zzz[a", `\`, "", "[-]", "a*b[c"} {
		for i, rules := range []agent.PolicyRules{
			{RegisterAllow: []string{"ok", glob}}, {RegisterDeny: []string{glob}},
			{CallAllow: []string{glob}}, {CallDeny: []string{"ok", glob}},
		} {
			if _, err := agent.NewPolicy(rules); err == nil {
				t.Errorf("list %d takes %q", i, glob)
			} else {
				wantCode(t, err, registry.CodeInvalidRequest)
			}
		}
	}
}

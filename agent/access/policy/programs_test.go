package policy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/policy"
)

func TestProgramsOfTheDefaults(t *testing.T) {
	p := newPolicy(t, policy.Options{})
	for in, want := range map[policy.Context]policy.Security{
		policy.Main: policy.Allowlist, policy.Sandboxed: policy.Full,
	} {
		q := asked(admin, "exec", "", in, false)
		q.Source = policy.Builtin
		got := p.Decide(q).Programs
		if got.Security != want || got.Elevated || got.Sandboxed ||
			!slices.Contains(got.Allow, "ls") {
			t.Errorf("in %q: %+v", in, got)
		}
	}
	q := asked(admin, "exec", "", policy.Main, false)
	q.Source = policy.Remote
	if got := p.Decide(q).Programs; got.Security != "" { // a device's own tool of that name
		t.Errorf("a device's: %+v", got)
	}
}

// Rules are joined so that each only takes away. None is about all calls of another: what can never apply is refused.
func TestProgramsAreJoined(t *testing.T) {
	for rules, want := range map[string]string{
		`{id: a, names: "*x", programs: {security: full, elevated: true}}`: "full  true false",
		`{id: a, names: "*x", programs: {security: full, elevated: true}}
  - {id: b, names: "x*", programs: {security: allowlist, allow: [ls, git status]}}`: "allowlist ls,git status " +
			"false false",
		`{id: a, names: "*x", programs: {security: allowlist, allow: [ls, date]}}
  - {id: b, names: "x*", programs: {security: allowlist, allow: [date, cat]}}`: "allowlist date false false",
		`{id: a, names: "*x", programs: {security: allowlist, allow: [ls]}}
  - {id: b, names: "x*", programs: {sandboxed: true}}`: "allowlist ls false true",
		`{id: a, names: "*x", programs: {security: deny}}
  - {id: b, names: "x*", programs: {security: full}}`: "deny  false false",
	} {
		p := newPolicy(t, policy.Options{})
		if err := p.Replace([]byte("version: 1\ntools:\n  - " + rules + "\n")); err != nil {
			t.Fatal(err)
		}
		got := p.Decide(asked(caller, "x", "", "", false)).Programs
		text := string(got.Security) + " " + strings.Join(got.Allow, ",")
		for _, flag := range []bool{got.Elevated, got.Sandboxed} {
			text += map[bool]string{true: " true", false: " false"}[flag]
		}
		if text != want {
			t.Errorf("%s:\n%s, want %s", rules, text, want)
		}
	}
}

// A report names the rule whose mode counts, and the mode where no rule names one.
func TestProgramsAreReported(t *testing.T) {
	p := newPolicy(t, policy.Options{File: []byte(`version: 1
tools:
  - {id: strict, names: "x*", programs: {security: deny}}
  - {id: loose, names: "*x", programs: {security: full}}
  - {id: boxed, names: y, programs: {sandboxed: true}}
`)})
	for tool, want := range map[string]policy.ProgramsReport{
		"xx": {Security: policy.Deny, Rule: "strict"}, "ax": {Security: policy.Full, Rule: "loose"},
		"y": {Security: policy.Allowlist, Sandboxed: true},
	} {
		q := asked(caller, tool, "", "", false)
		got := p.Decide(q).Report(q).Programs
		if got == nil || got.Security != want.Security || got.Rule != want.Rule || got.Sandboxed != want.Sandboxed {
			t.Errorf("%s: %+v, want %+v", tool, got, want)
		}
	}
}

func TestProgramsOfAFileAreChecked(t *testing.T) {
	for rule, says := range map[string]string{
		`{names: x, programs: {security: some}}`:                        "some",
		`{names: x, programs: {allow: [ls]}}`:                           "allowlist",
		`{names: x, programs: {security: deny, allow: [ls]}}`:           "allowlist",
		`{names: x, programs: {security: allowlist, allow: [/bin/ls]}}`: "name of a program",
		`{names: x, programs: {security: allowlist, allow: [""]}}`:      "this must be the name of a program",
		`{names: x, programs: {elevated: perhaps}}`:                     "true or false",
		`{names: x, programs: {mode: full}}`:                            "mode",
	} {
		err := policy.Check([]byte("version: 1\ntools:\n  - " + rule + "\n"))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", rule, err)
		}
	}
}

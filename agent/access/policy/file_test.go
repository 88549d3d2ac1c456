package policy_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/policy"
)

// TestFilesThatAreRefused lists what is wrong with a file, and where: every mistake is one with line and column, and
// none a rule that silently matches nothing.
func TestFilesThatAreRefused(t *testing.T) {
	for text, want := range map[string][]string{
		"":                       {"1:1: the file is empty"},
		"# nothing\n":            {"1:1: the file is empty"},
		"version: 2":             {"1:10: version must be 1"},
		"calls: [{deny: a}]":     {"1:1: a policy file needs version: 1"},
		"[1]":                    {"1:1: a policy file must be a mapping", "1:1: a policy file needs version"},
		"version: 1\nversion: 1": {`2:1: "version" appears twice; the first is in line 1`},
		"version: 1\ntool: []":   {`2:1: there is no field "tool"; did you mean "tools"?`},
		"version: 1\nusers: []":  {`2:1: there is no field "users"; there are: version, groups, register`},
		"version: 1\ncalls: {a: b}": {
			"2:8: this must be a list of rules"},
		"version: 1\ncalls:\n  - deny: a\n    dney: b\n    allow: []\n": {
			`4:5: there is no field "dney"; did you mean "deny"?`, "5:12: the list is empty"},
		"version: 1\ncalls:\n  - roles: caller\n":  {"3:5: the rule has neither allow nor deny"},
		"version: 1\ncalls:\n  - just a word\n":    {"3:5: a rule must be a mapping"},
		"version: 1\ncalls:\n  - deny: 'a b'\n":    {`3:11: the tool name pattern "a b" is malformed`},
		"version: 1\ncalls:\n  - deny: [a, [b]]\n": {"3:15: this must be a word or text"},
		"version: 1\ncalls:\n  - deny: ~\n":        {"3:11: this must be a word or text"},
		"version: 1\ncalls:\n  - {deny: a, roles: [user]}\n": {
			`3:23: there is no role "user"; there are: device, caller, approver, admin`},
		"version: 1\ncalls:\n  - {deny: a, contexts: groop}\n": {
			`3:25: there is no context "groop"; did you mean "group"?`},
		"version: 1\ncalls:\n  - {deny: group:none}\n":       {`3:12: there is no group "none"`},
		"version: 1\nregister: [{deny: a, contexts: group}]": {`there is no field "contexts"`},
		"version: 1\ngroups: {a: 'x y'}":                     {"2:13: the tool name pattern"},
		"version: 1\ngroups: {a: x, a: y}":                   {`2:16: the group "a" appears twice`},
		"version: 1\ngroups: [a]":                            {"2:9: groups must be a mapping"},
		"version: 1\ncalls: [{id: x, deny: a}, {id: x, deny: b}]": {
			`the id "x" belongs to the rule in line 2`},
		"version: 1\ncalls: [{id: 'x y', deny: a}]":                  {"an id may have at most 64 characters"},
		"version: 1\ncalls: [{deny: a, reason: \"a\\nb\"}]":          {"a reason may have one line"},
		"version: 1\ncalls: [{deny: a, reason: \"\\u202eevil\"}]":    {"a reason may have one line"},
		"version: 1\ntools: [{names: a, sandbox: no}]":               {"true or false"},
		"version: 1\ntools: [{names: a, level: sfae}]":               {`did you mean "safe"?`},
		"version: 1\ntools: [{levels: safe, level: safe}]":           {"cannot select tools by them"},
		"version: 1\ntools: [{names: a, calls_per_minute: 0}]":       {"a whole number from 1 to 600000"},
		"version: 1\ntools: [{names: a, calls_per_minute: many}]":    {"a whole number"},
		"version: 1\ntools: [{names: a, calls_per_minute: {us: 1}}]": {"there is no field \"us\""},
		"version: 1\ntools: [{names: a, resources: {maxFile: 1}}]":   {`did you mean "maxFiles"?`},
		"version: 1\ntools: [{names: a, resources: {maxSizeMB: -1}}]": {
			"a whole number from 1 to 1048576"},
		"version: 1\ntools: [{names: a, approval: sometimes}]": {`there is no condition "sometimes"`},
		"version: 1\ntools: [{names: a, forbid: never}]":       {`there is no condition "never"`},
		"version: 1\ntools: [{names: a, approval: {except: admin}}]": {
			"when: is required"},
		"version: 1\ntools: [{names: a, approval: {when: always, grant: soon}}]": {
			"a duration of at least 1s"},
		"version: 1\ntools: [{names: a, effects: evil}]":                 {`there is no effect "evil"`},
		"version: 1\ntools: [{names: a, sources: mars}]":                 {`there is no source "mars"`},
		"version: 1\ntools: [{names: a, set_effects: [none, changes]}]":  {"none says that the tool has no effects"},
		"version: 1\ntools: [{names: a, set_effects: [reads, unknown]}]": {"reads says that the tool changes nothing"},
		"version: 1\ntools: [{names: a, effects: reads}]":                {`there is no effect "reads"`},
		"version: 1\ntools: [{names: a, destinations: to}]":              {"this must be the path of a parameter"},
		"version: 1\ntools: [a]":                                         {"2:9: a rule must be a mapping"},
		"version: 1\nlimits: {calls_per_minute: {tenant: x}}":            {"a whole number"},
		"version: 1\nx: &a [b]\ny: *a":                                   {"2:4: anchors and aliases", "3:4: anchors"},
		"version: 1\n<<: {a: b}":                                         {"merged keys"},
		"version: !!int 1":                                               {"type tags (!!int)"},
		"version: 1\ncalls: [\n  {deny: a\n":                             {"4:1: did not find expected"},
		"version: 1\n\tcalls: []":                                        {"2:1: found a tab character"},
		"a: 1\n---\nb: 2\n":                                              {"2:1: a policy file must have one document"},
		"version: 1\n---\nversion: 1\n":                                  {"2:1: a policy file must have one document"},
		strings.Repeat("[", 20_000):                                      {"exceeded max depth"},
		"version: 1\ncalls:\n" + strings.Repeat("- deny: a\n", 2001):     {"3:1: there are more than 2000 rules"},
	} {
		err := policy.Check([]byte(text))
		var problems policy.Problems
		if !errors.As(err, &problems) || len(problems) == 0 {
			t.Errorf("%q: %v", short(text), err)
			continue
		}
		for _, part := range want {
			if !slices.ContainsFunc(problems, func(p policy.Problem) bool {
				return strings.Contains(p.String(), part)
			}) {
				t.Errorf("%q: want %q:\n%v", short(text), part, err)
			}
		}
		if len(problems) > 20 || len(problems) < len(want) || problems[0].Line < 1 || problems[0].Column < 1 {
			t.Errorf("%q: %d problems: %v", short(text), len(problems), err)
		}
	}
}

// bombs are files that say little and would cost much: groups that are named again and again, and misspelt names of
// groups among thousands. Each has a problem.
func bombs() map[string]string {
	var groups, names strings.Builder
	for i := range 9000 {
		fmt.Fprintf(&groups, "  g%d: a\n", i)
		fmt.Fprintf(&names, ", group:x%d", i)
	}
	big := "groups: {g: [" + strings.Repeat("a?, ", 10_000) + "b]}\n"
	return map[string]string{
		"a group named often in a list": "version: 1\n" + big + "calls:\n- deny: [" +
			strings.Repeat("group:g, ", 20_000) + "c]\n",
		"a group named in many rules": "version: 1\n" + big + "calls:\n" + strings.Repeat("- deny: group:g\n", 2000),
		"groups that there are not": "version: 1\ngroups:\n" + groups.String() + "calls:\n- deny: [c" + names.String() +
			"]\n",
		"many patterns": "version: 1\ncalls:\n- deny: [" + strings.Repeat("a?, ", 60_000) + "c]\n",
	}
}

// What reading a file costs is bounded, also where a quarter of a megabyte stands for millions of patterns.
func TestCostlyFiles(t *testing.T) {
	for name, text := range bombs() {
		var problems policy.Problems
		if err := policy.Check([]byte(text)); len(text) > policy.MaxFile || !errors.As(err, &problems) ||
			len(problems) > 20 {
			t.Errorf("%s: %d bytes: %v", name, len(text), err)
		} else if want := "tool patterns"; !strings.Contains(name, "there are not") &&
			(len(problems) != 1 || !strings.Contains(problems[0].Message, want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func short(s string) string { return fmt.Sprintf("%.200s", s) }

// rulesOf returns the policy of a file whose first line is added.
func rulesOf(t *testing.T, text string) *policy.Policy {
	t.Helper()
	return newPolicy(t, policy.Options{File: []byte("version: 1\n" + text)})
}

func TestNameRules(t *testing.T) {
	p := rulesOf(t, `
groups:
  cameras: [camera_*, screen_record]
register:
  - {id: only-tvs, users: [tv-*], allow: [play, stop]}
  - {id: no-shells, deny: [exec, bash], reason: Shells are not for devices here.}
calls:
  - {id: guests, roles: caller, users: guest*, allow: [time, group:cameras]}
  - {id: more, roles: caller, users: guest*, allow: weather}
  - {id: no-record, contexts: [group, group sandboxed], deny: screen_*}
  - {tenants: acme, deny: weather}
`)
	guest := caller
	guest.User = "guest-7"
	acme := caller
	acme.Tenant = "acme"
	for _, tt := range []struct {
		q    policy.Question
		rule string
	}{
		{asked(guest, "time", "", "", false), ""},
		{asked(guest, "weather", "", "", false), ""},
		{asked(guest, "camera_snap", "", "", false), ""},
		{asked(guest, "screen_record", "", "", false), ""},
		{asked(guest, "screen_record", "", policy.Group, false), "no-record"},
		{asked(admin, "screen_record", "", policy.Sandboxed, false), "no-record"},
		{asked(guest, "lamp", "", "", false), "guests"},
		{asked(caller, "lamp", "", "", false), ""},
		{asked(acme, "weather", "", "", false), "line-12"},
		{asked(caller, "weather", "", "", false), ""},
	} {
		if d := p.Decide(tt.q); d.Rule != tt.rule || d.Allowed != (tt.rule == "") ||
			!d.Allowed && !strings.Contains(d.Reason, tt.rule) {
			t.Errorf("%s for %s: %+v, want rule %q", tt.q.Tool.Name, tt.q.Who.User, d, tt.rule)
		}
	}
	tv := device
	tv.User = "tv-1"
	if p.MayRegister(tv, "play").Rule != "" || p.MayRegister(tv, "lamp").Rule != "only-tvs" ||
		p.MayRegister(device, "lamp").Rule != "" ||
		p.MayRegister(admin, "Bash").Reason != "Shells are not for devices here." {
		t.Error("who may register what")
	}
}

func TestToolRules(t *testing.T) {
	p := rulesOf(t, `
tools:
  - {id: ours, names: diary, approval: never}
  - {id: pay, names: pay, level: user_confirm, roles: [caller], approval: {when: outside main, grant: 30m}}
  - {id: harmless, names: wipe_cache, level: safe, set_effects: none}
  - {id: home, names: door_*, contexts: main, sandbox: false, calls_per_minute: {identity: 6, device: 20}}
  - {id: door, names: door_open, calls_per_minute: 2, resources: {maxRuntimeSec: 5, maxFiles: 9}, for: {roles: caller}}
  - {id: effects, effects: [destructive, open world], approval: argument from outside,
     forbid: {when: after untrusted content, except: approver}}
  - {id: never, names: nuke, forbid: always, reason: No.}
  - {id: default:programs, names: exec, roles: admin}
limits:
  calls_per_minute: {tenant: 600}
`)
	yes := true
	mail := asked(caller, "mail", "", "", true)
	mail.Tool.Annotations = hints(nil, nil, &yes)
	d := p.Decide(mail)
	if f, a := d.Forbidden(policy.Untrusted), d.Approval(policy.ForeignArgument); f == nil || f.Rule != "effects" ||
		a == nil || a.Rule != "effects" || d.Forbidden(policy.ForeignArgument) != nil || d.Approval(0) != nil {
		t.Errorf("mail: %+v", d)
	}
	mail.Who = approver
	if d := p.Decide(mail); d.Forbidden(policy.Untrusted) != nil {
		t.Errorf("mail for whom may approve it: %+v", d)
	}
	if d := p.Decide(asked(caller, "diary", "user_confirm", "", true)); d.Approval(0) != nil {
		t.Errorf("diary: %+v", d)
	}
	d = p.Decide(asked(approver, "pay", "", policy.Group, false))
	if a := d.Approval(0); d.Level != "user_confirm" || a == nil || a.Rule != "pay" || a.Grant != 30*time.Minute {
		t.Errorf("pay: %+v", d)
	}
	if d := p.Decide(asked(device, "pay", "", "", false)); d.Rule != "pay" || d.Code != "forbidden" {
		t.Errorf("pay for a device: %+v", d)
	}
	wipe := asked(caller, "wipe_cache", "admin_only", "", true)
	wipe.Tool.Annotations = hints(nil, &yes, nil)
	if d := p.Decide(wipe); !d.Allowed || d.Level != "safe" || d.Effects != 0 || len(d.Forbids) > 0 {
		t.Errorf("what the operator says of a tool counts: %+v", d)
	}
	if d := p.Decide(asked(admin, "nuke", "", "", false)); d.Rule != "never" || d.Reason != "No." {
		t.Errorf("nuke: %+v", d)
	}
	if p.Decide(asked(caller, "exec", "", "", false)).Rule != "default:programs" ||
		!p.Decide(asked(admin, "exec", "", policy.Group, false)).Allowed {
		t.Error("a rule with the id of a default does not take its place")
	}
	if d := p.Decide(asked(caller, "door_close", "", policy.Sandboxed, false)); d.Rule != "home" {
		t.Errorf("door_close in a sandbox: %+v", d)
	}
	d = p.Decide(asked(caller, "door_open", "", "", false))
	want := []policy.Limit{
		{Rule: "limits", Per: policy.PerTenant, Calls: 600, Window: time.Minute},
		{Rule: "home", Per: policy.PerIdentity, Tool: "door_open", Calls: 6, Window: time.Minute},
		{Rule: "home", Per: policy.PerDevice, Tool: "door_open", Calls: 20, Window: time.Minute},
		{Rule: "door", Per: policy.PerIdentity, Tool: "door_open", Calls: 2, Window: time.Minute},
	}
	if !slices.Equal(d.Limits, want) || d.Resources != (policy.Resources{MaxRuntime: 5 * time.Second, MaxFiles: 9}) {
		t.Errorf("door_open: %+v", d)
	}
	if d := p.Decide(asked(admin, "door_open", "", "", false)); len(d.Limits) != 3 || !d.Resources.IsZero() {
		t.Errorf("door_open for an admin, for whom the rule door is not: %+v", d)
	}
}

// TestDestinations: the destinations of all rules about a tool count.
func TestDestinations(t *testing.T) {
	p := rulesOf(t, "tools: [{names: 'send_*', destinations: /to}, "+
		"{names: send_mail, destinations: [/cc, '/list/*/to']}]")
	d := p.Decide(asked(caller, "send_mail", "", "", true))
	if want := []string{"/to", "/cc", "/list/*/to"}; !slices.Equal(d.Destinations, want) {
		t.Errorf("%q", d.Destinations)
	}
	if d := p.Decide(asked(caller, "mail", "", "", true)); len(d.Destinations) > 0 {
		t.Errorf("of another tool: %q", d.Destinations)
	}
}

// TestSetEffects: what reaches strangers changes something, unless the operator says that it reads.
func TestSetEffects(t *testing.T) {
	for written, want := range map[string]policy.Effects{
		"none": 0, "reads": 0, "changes": policy.Changes, "unknown": policy.Unknown,
		"destructive": policy.Changes | policy.Destructive, "open world": policy.Changes | policy.OpenWorld,
		"[open world]": policy.Changes | policy.OpenWorld, "[reads, open world]": policy.OpenWorld,
	} {
		p := rulesOf(t, "tools: [{names: a, set_effects: "+written+"}]")
		if d := p.Decide(asked(caller, "a", "", "", true)); d.Effects != want ||
			d.Effects.OnlyReads() != (want&^policy.OpenWorld == 0) {
			t.Errorf("%s: %b, want %b", written, d.Effects, want)
		}
	}
}

// Answers that are remembered are those of the rules in force.
func TestReplaceForgets(t *testing.T) {
	p := rulesOf(t, "calls: [{deny: a}]")
	for range 2 {
		if allowed(p, "a") {
			t.Fatal("a is denied")
		}
	}
	if err := p.Replace([]byte("version: 9")); err == nil || allowed(p, "a") {
		t.Fatalf("a bad file: %v", err)
	}
	if err := p.Replace(nil); err != nil || !allowed(p, "a") {
		t.Fatalf("no file: %v", err)
	}
}

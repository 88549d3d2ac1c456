package policy_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/policy"
)

// TestUnreachable lists what a file can say in vain, what is said of it, and what looks like it and applies.
func TestUnreachable(t *testing.T) {
	for name, tt := range map[string]struct {
		rules string
		want  []string // parts of problems, one each; none: the file is good
	}{
		"full beside the default": {"{id: mine, names: exec, programs: {security: full}}", []string{
			"3:5: security: full never applies: the rule default:programs-on-the-host has security: allowlist for " +
				"these calls, and the stricter mode applies. To replace it, give a rule the id " +
				"default:programs-on-the-host"}},
		"full by a pattern": {"{names: 'e*ec', programs: {security: full}}", nil}, // there may be an exxec
		"full for one user": {
			"{names: [bash, exec], for: {users: ada}, programs: {security: full}}",
			[]string{"security: full"},
		},
		"full in place of the default": {
			"{id: default:programs-on-the-host, names: exec, programs: {security: full}}",
			nil,
		},
		"stricter than the default": {"{names: exec, programs: {security: deny}}", nil},
		"stricter in one context":   {"{names: exec, programs: {security: allowlist}}", nil},
		"as the default": {
			"{names: exec, for: {contexts: group sandboxed}, programs: {security: full}}",
			nil,
		},
		"elevated beside the default": {
			"{names: exec, programs: {elevated: true}}",
			[]string{"elevated: true never applies: the rule default:programs-on-the-host"},
		},
		"a program beside the default": {
			"{names: exec, programs: {security: allowlist, allow: [ls, git status]}}",
			[]string{`allow: "git status" never applies: it is not in the list of ` +
				`the rule default:programs-on-the-host`},
		},
		"fewer programs": {"{names: exec, programs: {security: allowlist, allow: [ls, date]}}", nil},
		"the sandbox":    {"{names: exec, programs: {sandboxed: true}}", nil},
		"programs of devices": {"{names: shell, sources: remote, programs: {security: deny}}", []string{
			"programs never applies: only built-in tools"}},
		"more time than the default": {"{names: exec, resources: {maxRuntimeSec: 300}}", []string{
			"maxRuntimeSec: 300 never applies: the rule default:programs has 30"}},
		"less time than the default": {"{names: exec, resources: {maxRuntimeSec: 5}}", nil},
		"larger files than by default": {
			"{names: read, resources: {maxSizeMB: 50, maxFiles: 10}}",
			[]string{"maxSizeMB: 50 never applies: the rule default:files has 10"},
		},
		"the larger of two limits": {
			"{names: 'door_*', calls_per_minute: {device: 5}}\n  - {names: door_open, calls_per_minute:" +
				" {identity: 9, device: 9}}",
			[]string{"4:5: calls_per_minute: 9 for each device never applies: the rule line-3 in line 3 has 5"},
		},
		"the smaller of two limits": {
			"{names: 'door_*', calls_per_minute: 9}\n  - {names: door_open, calls_per_minute: 5}",
			nil,
		},
		"programs in groups": {"{names: exec, for: {contexts: group}, approval: always}", []string{
			"the rule never applies: the rule default:programs refuses all its calls"}},
		"a context of the default": {
			"{names: bash, contexts: [main, group]}",
			[]string{"contexts: group never applies: the rule default:programs"},
		},
		"below a refusal": {"{id: off, names: 'x*', forbid: always}\n  - {names: xy, approval: always}", []string{
			"4:5: the rule never applies: the rule off in line 3 refuses"}},
		"beside a refusal of models": {"{names: x, forbid: asked by a model, approval: asked by a model}", []string{
			"approval: asked by a model never applies: the rule itself refuses such calls"}},
		"beside a refusal of others":  {"{names: x, forbid: asked directly, approval: asked by a model}", nil},
		"beside a refusal of some":    {"{names: x, forbid: {when: always, except: approver}, approval: always}", nil},
		"both conditions in one rule": {"{names: x, approval: [asked by a model, asked directly]}", nil},
		"below never": {"{id: quiet, names: 'x*', approval: never}\n  - {names: xy, approval: always}", []string{
			"approval: always never applies: the rule quiet in line 3 comes first"}},
		"below never of some": {
			"{names: 'x*', approval: never, for: {roles: admin}}\n  - {names: xy, approval: always}",
			nil,
		},
		"above never": {"{names: xy, approval: always}\n  - {names: 'x*', approval: never}", nil},
		"after never": {
			"{names: x, approval: [never, outside main]}",
			[]string{"approval: outside main never applies: the rule itself comes first"},
		},
		"outside main, in main": {
			"{names: x, contexts: main, approval: outside main}",
			[]string{"approval: outside main never applies: the rule covers only calls in the context main"},
		},
		"refused outside main": {
			"{names: x, for: {contexts: main}, forbid: outside main}",
			[]string{"forbid: outside main never applies"},
		},
		"refused in other ways": {"{names: x, contexts: main, forbid: outside main}", nil},
		"a model and admins": {"{levels: admin_only, approval: asked by a model}", []string{
			"approval: asked by a model never applies: models may not call these tools"}},
		"a model and a level": {
			"{names: wipe, level: admin_only, forbid: asked by a model}",
			[]string{"forbid: asked by a model never applies"},
		},
		"an admin and a level": {
			"{names: wipe, level: admin_only, approval: {when: always, except: approver}}",
			[]string{"have a role in except:"},
		},
		"only who is excepted": {
			"{names: x, for: {roles: [approver, admin]}, approval: {when: always, except: approver}}",
			[]string{"have a role in except:"},
		},
		"who must be excepted": {
			"{names: x, roles: approver, forbid: {when: always, except: approver}}",
			[]string{"forbid: always never applies"},
		},
		"who may be excepted": {
			"{names: x, roles: [caller, approver], approval: {when: always, except: approver}}",
			nil,
		},
		"the second level": {
			"{names: 'p*', level: safe}\n  - {names: pay, level: user_confirm}",
			[]string{"level: user_confirm never applies: the rule line-3 in line 3 gives these tools the" +
				" level safe"},
		},
		"the first level": {"{names: pay, level: user_confirm}\n  - {names: 'p*', level: safe}", nil},
		"the second effects": {
			"{names: pay, set_effects: changes}\n  - {names: pay, set_effects: none}",
			[]string{"set_effects never applies"},
		},
		"other effects": {
			"{names: 'p*', set_effects: [reads, open world]}\n  - {names: pay, effects: changes, approval: always}",
			[]string{"4:5: the rule never applies: other rules give its tools effects"},
		},
		"effects of some tools": {
			"{names: pay, set_effects: none}\n  - {names: 'p*', effects: changes, approval: always}",
			nil,
		},
		"anyone beside two": {
			"{id: four-eyes, names: 'p*', approval: {by: two}}\n  - {names: pay, approval: {by: anyone}}",
			[]string{"4:5: by: anyone never applies: the rule four-eyes in line 3 covers the same calls with " +
				"by: two"},
		},
		"anyone beside what is left out": {
			"{names: pay, approval: {by: anyone}}\n  - {names: 'p*', approval: always}",
			[]string{"3:5: by: anyone never applies: the rule line-4 in line 4 covers the same calls with " +
				"by: unset"},
		},
		"anyone beside two for some": {
			"{names: pay, approval: {by: two, when: over MCP}}\n  - {names: pay, approval: {by: anyone}}",
			nil,
		},
		"two beside anyone": {
			"{names: 'p*', approval: {by: anyone}}\n  - {names: pay, approval: {by: two}}",
			nil,
		},
		"anyone, and never before two": {
			"{names: pay, approval: {by: anyone}}\n" +
				"  - {names: pay, approval: [{when: never, except: admin}, {by: two}]}",
			nil,
		},
		"longer within": {
			"{names: 'p*', approval: {within: 5m}}\n  - {names: pay, approval: {within: 1h}}",
			[]string{"4:5: within: 1h0m0s never applies: the rule line-3 in line 3 covers the same calls with " +
				"within: 5m"},
		},
		"shorter within": {"{names: 'p*', approval: {within: 1h}}\n  - {names: pay, approval: {within: 5m}}", nil},
		"another level": {
			"{names: pay, level: safe}\n  - {names: pay, levels: user_confirm, approval: always}",
			[]string{"4:5: the rule never applies: other rules give its tools levels"},
		},
		"a level of some": {
			"{names: pay, for: {users: ada}, level: safe}\n  - {names: pay, levels: user_confirm, " +
				"approval: always}",
			nil,
		},
		"no context is left": {
			"{names: x, contexts: group sandboxed, sandbox: false}",
			[]string{"no call can pass: contexts and sandbox: false exclude each other"},
		},
		"contexts are left": {"{names: x, contexts: [group, group sandboxed], sandbox: false}", nil},
		"a default misspelt": {
			"{id: default:programs-on-host, names: exec}",
			[]string{`no default has the id "default:programs-on-host"`},
		},
		"terms of no question": {
			"{names: x, approval: {when: never, by: two}}",
			[]string{"by, within and grant have no effect"},
		},
		"a grant of two": {
			"{names: x, approval: {by: two, grant: 1h}}",
			[]string{"grant has no effect with by: two"},
		},
		"tools without effects": {"{effects: none, approval: always}", []string{`there is no effect "none"`}},
	} {
		t.Run(name, func(t *testing.T) { checks(t, "version: 1\ntools:\n  - "+tt.rules+"\n", tt.want) })
	}
	for name, tt := range map[string]struct {
		rules string
		want  []string
	}{
		"allowed and denied": {
			"{id: no, deny: 'camera_*'}\n  - {users: ada, allow: [camera_snap, 'camera_?']}",
			[]string{"4:5: allow never applies: the rule no in line 3 denies these names, and deny"},
		},
		"allowed in part": {
			"{deny: camera_record}\n  - {users: ada, allow: ['camera_*', camera_record]}",
			nil,
		},
		"denied to others":         {"{users: bob, deny: a}\n  - {users: ada, allow: a}", nil},
		"denied in groups":         {"{contexts: group, deny: a}\n  - {users: ada, allow: a}", nil},
		"denied by the same":       {"{deny: [a, b], allow: [a]}", []string{"allow never applies"}},
		"the id of a default":      {"{id: default:programs, deny: exec}", []string{"ids of defaults are"}},
		"said twice, and harmless": {"{deny: a}\n  - {users: ada, deny: a}", nil},
	} {
		t.Run(name, func(t *testing.T) { checks(t, "version: 1\ncalls:\n  - "+tt.rules+"\n", tt.want) })
	}
}

// checks compares what is wrong with a file with what should be. Check and New agree.
func checks(t *testing.T, text string, want []string) {
	t.Helper()
	err := policy.Check([]byte(text))
	var problems policy.Problems
	if errors.As(err, &problems); len(problems) != len(want) {
		t.Errorf("%d problems, want %d:\n%v", len(problems), len(want), err)
	}
	for i := range min(len(want), len(problems)) {
		if !strings.Contains(problems[i].String(), want[i]) {
			t.Errorf("%s\nwant %s", problems[i], want[i])
		}
	}
	if _, loaded := policy.New(policy.Options{File: []byte(text)}); (loaded == nil) != (err == nil) {
		t.Errorf("check says %v, and New %v", err, loaded)
	}
}

// TestWarnings lists rules that ask for less than they seem to.
func TestWarnings(t *testing.T) {
	for name, tt := range map[string]struct {
		rules string
		want  string // part of the only warning; empty: there is none
	}{
		"by its own word": {"{names: get, set_effects: none, approval: argument from outside}",
			"3:5: approval: argument from outside asks only for URLs, because set_effects says"},
		"a fetch": {"{names: get, set_effects: [reads, open world], approval: argument from outside}", "only for URLs"},
		"by another rule": {
			"{names: 'g*', set_effects: reads}\n  - {names: get, forbid: argument from outside}",
			"4:5: forbid: argument from outside refuses only for URLs"},
		"some tools": {
			"{names: get, set_effects: none}\n  - {names: 'g*', approval: argument from outside}",
			"",
		},
		"a mail":            {"{names: mail, set_effects: open world, approval: argument from outside}", ""},
		"an effect":         {"{names: mail, set_effects: destructive, approval: argument from outside}", ""},
		"another condition": {"{names: get, set_effects: none, approval: after untrusted content}", ""},
		"all tools":         {"{approval: argument from outside}", ""},
	} {
		file := []byte("version: 1\ntools:\n  - " + tt.rules + "\n")
		if err := policy.Check(file); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		warnings := policy.Warnings(file)
		if tt.want == "" && warnings != nil ||
			tt.want != "" && (len(warnings) != 1 || !strings.Contains(warnings[0].String(), tt.want)) {
			t.Errorf("%s: %v", name, warnings)
		}
	}
}

// Every rule that the documents and examples show is one that can apply.
func TestRulesOfTheDocuments(t *testing.T) {
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	shown := 0
	pages, err := filepath.Glob("../../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(pages, "../../../README.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range block.FindAllStringSubmatch(string(text), -1) {
			rules := found[1]
			if !strings.Contains("\n"+rules, "\ntools:") && !strings.Contains("\n"+rules, "\ncalls:") {
				continue
			}
			if !strings.Contains(rules, "version:") {
				rules = "version: 1\n" + rules
			}
			shown++
			if err := policy.Check([]byte(rules)); err != nil || policy.Warnings([]byte(rules)) != nil {
				t.Errorf("%s:\n%s%v %v", path, rules, err, policy.Warnings([]byte(rules)))
			}
		}
	}
	if shown < 2 {
		t.Errorf("only %d files are shown", shown)
	}
	example, err := os.ReadFile("../../../examples/policy/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := policy.Check(example); err != nil || policy.Warnings(example) != nil {
		t.Error(err, policy.Warnings(example))
	}
}

package policy

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// parts are what rules of the test are made of: values of each field.
var parts = map[string][]string{
	"names":   {"exec", "[exec, read]", `"*"`, `"e*"`, "x", `"?"`},
	"levels":  {"safe", "user_confirm", "admin_only", "[safe, admin_only]"},
	"effects": {"unknown", "[changes, destructive]"},
	"sources": {"remote", "builtin", "[builtin, mcp]"},
	"for": {"{roles: admin}", "{roles: [approver, caller]}", "{contexts: main}",
		"{contexts: [group, main]}", "{users: a}"},
	"level":       {"safe", "user_confirm", "admin_only"},
	"set_effects": {"none", "destructive", "open world"},
	"roles":       {"caller", "[approver, admin]"},
	"contexts":    {"main", "[main, group]", "group sandboxed"},
	"sandbox":     {"false"},
	"approval": {"always", "never", "outside main", "asked by a model", "over MCP",
		"{when: always, except: approver}", "after untrusted content", "{when: always, by: anyone}",
		"{when: over MCP, by: two}", "{when: always, within: 1h}", "{when: always, within: 5m}",
		"{when: always, within: 2h}"},
	"forbid": {"always", "outside main", "asked directly", "over MCP", "{when: always, except: caller}",
		"argument from outside"},
	"calls_per_minute": {"5", "9", "{device: 7}"},
	"resources": {"{maxRuntimeSec: 10}", "{maxRuntimeSec: 60}", "{maxFiles: 5}",
		"{maxFiles: 50}", "{maxSizeMB: 50}", "{maxProcesses: 3}"},
	"programs": {"{security: full}", "{security: deny}", "{security: allowlist, allow: [ls]}",
		"{security: allowlist, allow: [ls, make]}", "{elevated: true}", "{sandboxed: true}"},
}

// anyRule returns a rule of some parts.
func anyRule(random *rand.Rand, id string) map[string]string {
	rule := map[string]string{"id": id}
	fields := []string{"names", "levels", "effects", "sources", "for", "level", "set_effects", "roles", "contexts",
		"sandbox", "approval", "forbid", "calls_per_minute", "resources", "programs"}
	for _, field := range fields {
		share := 0.2
		if field == "names" {
			share = 0.8
		}
		if random.Float64() < share {
			rule[field] = parts[field][random.IntN(len(parts[field]))]
		}
	}
	if rule["level"] != "" || rule["set_effects"] != "" {
		delete(rule, "levels")
		delete(rule, "effects")
	}
	return rule
}

// fileOf returns the text of a file, one line for each rule from line 3 on.
func fileOf(rules []map[string]string) string {
	var b strings.Builder
	b.WriteString("version: 1\ntools:\n")
	for _, rule := range rules {
		fmt.Fprintf(&b, "  - {id: %s", rule["id"])
		for field, value := range rule {
			if field != "id" {
				fmt.Fprintf(&b, ", %s: %s", field, value)
			}
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// questions are what policy is asked about the tools of the test.
func questions() (all []Question) {
	yes := true
	for _, name := range []string{"exec", "read", "x", "other"} {
		for _, who := range []auth.Identity{
			{Roles: auth.RoleCaller}, {Roles: auth.RoleDevice}, {Admin: true, User: "a"},
			{Roles: auth.RoleCaller | auth.RoleApprover, User: "a"}, {Roles: auth.RoleApprover},
		} {
			for _, in := range Contexts() {
				for s := Remote; s <= MCP; s++ {
					for _, level := range levels {
						for way := range 4 {
							q := Question{Who: who, Context: in, Source: s, Model: way&1 != 0, OverMCP: way&2 != 0,
								Tool: registry.ToolSpec{Name: name, SecurityLevel: level}}
							all = append(all, q)
							q.Tool.Annotations = &registry.Annotations{DestructiveHint: &yes}
							all = append(all, q)
						}
					}
				}
			}
		}
	}
	return all
}

// meaning is what a decision means for a call: what it says of rules and of limits that others undercut is left out.
func meaning(q Question, d *Decision) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %s %v %v", d.Allowed, d.Level, d.Effects, d.Resources.MaxRuntime)
	if q.Source == Builtin {
		p := d.Programs
		fmt.Fprintf(&b, " %v %q %v %v %v", d.Resources, Stricter(p.Security, Full), p.Elevated, p.Sandboxed, p.said)
		if p.said {
			slices.Sort(p.Allow)
			fmt.Fprintf(&b, " %q", p.Allow)
		}
	}
	for _, per := range []Per{PerIdentity, PerTenant, PerDevice} {
		least := 0
		for _, l := range d.Limits {
			if l.Per == per && (least == 0 || l.Calls < least) {
				least = l.Calls
			}
		}
		fmt.Fprintf(&b, " %d", least)
	}
	for m := Marks(0); m <= Untrusted|ForeignArgument; m++ {
		fmt.Fprintf(&b, " %v", d.Forbidden(m) != nil)
		if d.Forbidden(m) == nil {
			t := d.Terms(m)
			fmt.Fprintf(&b, " %v %s %v", t.Rules, t.By, t.Within)
		}
	}
	return b.String()
}

// TestUnreachableIsCertain leaves out of any file what is said to be in vain: no answer changes.
func TestUnreachableIsCertain(t *testing.T) {
	random, asked, found := rand.New(rand.NewPCG(1, 2)), questions(), make(map[string]int)
	for range 2000 {
		rules := []map[string]string{anyRule(random, "a"), anyRule(random, "b"), anyRule(random, "c")}
		text := fileOf(rules)
		var problems Problems
		if err := Check([]byte(text)); err == nil || !errors.As(err, &problems) {
			continue
		}
		for _, p := range problems {
			at := p.Line - 3
			field, _, _ := strings.Cut(p.Message, ":")
			if field = strings.TrimSuffix(field, " never applies"); found[field] >= 8 {
				continue
			}
			left := without(rules, at, field, p.Message)
			if left == nil {
				continue
			}
			found[field]++
			before, after := unchecked(t, text), unchecked(t, fileOf(left))
			for _, q := range asked {
				if b, a := meaning(q, before.decide(&q)), meaning(q, after.decide(&q)); a != b {
					t.Fatalf("%s\n%s\n%s\n%+v\nbefore: %s\nafter:  %s", text, p, fileOf(left), q, b, a)
				}
			}
		}
	}
	t.Log(found)
	for _, field := range []string{"the rule", "approval", "forbid", "security", "elevated", "allow", "maxRuntimeSec",
		"calls_per_minute", "level", "set_effects", "contexts", "by", "within"} {
		if found[field] == 0 {
			t.Errorf("no file has %s in vain", field)
		}
	}
}

// without returns the rules without what a problem is about, nil where leaving it out would say something else.
func without(rules []map[string]string, at int, field, message string) []map[string]string {
	left := slices.Clone(rules)
	rule := maps.Clone(rules[at])
	left[at] = rule
	switch field {
	case "the rule":
		return slices.Delete(left, at, at+1)
	case "security", "elevated": // what stays is that the rule says something of programs
		if strings.Contains(rule["programs"], "allow:") {
			return nil
		}
		rule["programs"] = "{}"
	case "allow":
		if !strings.Contains(message, "make") {
			return nil
		}
		rule["programs"] = "{security: allowlist, allow: [ls]}"
	case "programs":
		delete(rule, "programs")
	case "no call can pass":
		delete(rule, "contexts")
		delete(rule, "sandbox")
		rule["forbid"] = "always"
	case "maxFiles", "maxSizeMB", "maxProcesses", "maxRuntimeSec":
		delete(rule, "resources")
	case "by", "within":
		rule["approval"] = rule["approval"][:strings.Index(rule["approval"], ", "+field)] + "}"
	case "contexts":
		if !strings.Contains(rule["contexts"], "group]") {
			return nil
		}
		rule["contexts"] = "main"
	case "approval", "forbid", "calls_per_minute", "level", "set_effects":
		delete(rule, field)
	default:
		panic(message)
	}
	return left
}

// unchecked returns the rules of a file beside the defaults.
func unchecked(t *testing.T, file string) *rules {
	t.Helper()
	all, err := parse(defaults, nil)
	if err != nil {
		t.Fatal(err)
	}
	own, err := parse([]byte(file), nil)
	if err != nil {
		t.Fatal(err)
	}
	own.tools = append(own.tools, all.tools...)
	return own
}

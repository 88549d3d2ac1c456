package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// policyRun runs `farhand policy` in this process.
func policyRun(t *testing.T, environ []string, args ...string) (code int, out string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	a := application{out: &stdout, err: &stderr, environ: environ, args: append([]string{"policy"}, args...)}
	code = a.run(t.Context())
	return code, stdout.String() + stderr.String()
}

func policyFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPolicyCheck(t *testing.T) {
	good := policyFile(t, "version: 1\ncalls: [{deny: a}]\n")
	if code, out := policyRun(t, nil, "check", good); code != 0 || out != good+" is valid.\n" {
		t.Errorf("a good file: %d %s", code, out)
	}
	bad := policyFile(t, "version: 1\ncalls:\n  - {dney: a}\n  - {deny: a, roles: user}\n")
	code, out := policyRun(t, nil, "check", bad)
	if code != 1 || !strings.Contains(out, bad+`:3:6: there is no field "dney"; did you mean "deny"?`) ||
		!strings.Contains(out, bad+`:4:22: there is no role "user"`) {
		t.Errorf("a bad file: %d %s", code, out)
	}
	vain := policyFile(t, "version: 1\ntools:\n  - {id: mine, names: exec, programs: {security: full}}\n")
	if code, out := policyRun(t, nil, "check", vain); code != 1 ||
		!strings.Contains(out, vain+":3:5: security: full never applies: the rule default:programs-on-the-host") {
		t.Errorf("a rule that never applies: %d %s", code, out)
	}
	hardly := policyFile(t, "version: 1\ntools: [{names: get, set_effects: none, approval: argument from outside}]\n")
	code, out = policyRun(t, nil, "check", hardly)
	if code != 0 || !strings.HasSuffix(out, hardly+" is valid, with warnings.\n") ||
		!strings.HasPrefix(out, hardly+":2:9: warning: approval: argument from outside asks only for URLs") {
		t.Errorf("a rule that hardly asks: %d %s", code, out)
	}
	if code, out := policyRun(t, nil, "check", "--json", hardly); code != 0 || !strings.Contains(out, `"warnings"`) {
		t.Errorf("a rule that hardly asks, as JSON: %d %s", code, out)
	}
	var report struct {
		OK       bool
		Problems []struct{ Line, Column int }
	}
	code, out = policyRun(t, nil, "check", "--json", bad)
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 1 || report.OK || len(report.Problems) < 2 ||
		report.Problems[0].Line != 3 {
		t.Errorf("JSON: %d %v %s", code, err, out)
	}
	if code, out := policyRun(t, nil, "check", good+".none"); code != 2 || !strings.Contains(out, "no such file") {
		t.Errorf("no file: %d %s", code, out)
	}
}

func TestPolicyExplain(t *testing.T) {
	file := policyFile(t, `version: 1
calls:
  - {id: no-cameras, contexts: group, deny: camera_*, reason: No cameras in groups.}
tools:
  - {id: vault, names: vault, forbid: over MCP}
  - {id: diary, names: diary, forbid: asked by a model}
  - {id: mail, names: mail, destinations: [/to, /cc], set_effects: open world, approval: argument from outside}
  - {id: fetch, names: fetch, set_effects: [reads, open world], approval: argument from outside}
  - {id: door, names: door_open, calls_per_minute: {device: 3}, resources: {maxFiles: 2}, approval: outside main}
`)
	for _, tt := range []struct {
		args []string
		env  []string
		code int
		want []string
	}{
		{[]string{"--as", "ada", "--context", "group", "camera_snap"}, nil, 1,
			[]string{"denied", "rule      no-cameras", "reason    No cameras in groups."}},
		{[]string{"--as", "ada", "camera_snap"}, nil, 0, []string{"allowed\n  level     safe"}},
		{[]string{"--context", "group", "door_open"}, nil, 0, []string{"approval  outside main (rule door)",
			"3 calls of this tool in 60 s per device (rule door)", "maxFiles 2"}},
		{[]string{"--role", "admin", "exec"}, nil, 0, []string{"programs  allowlist ls cat",
			"programs  by rule default:programs-on-the-host; to allow more, write a rule with the id " +
				"default:programs-on-the-host in its place"}},
		{[]string{"--role", "admin", "--context", "group sandboxed", "bash"}, nil, 0, []string{"programs  full",
			"by rule default:programs-in-the-sandbox"}},
		{[]string{"--role", "admin", "camera_snap"}, []string{"FARHAND_CALL_DENY=x,camera_*"}, 1,
			[]string{"rule      call-deny"}},
		{[]string{"--level", "admin_only", "wipe"}, nil, 1, []string{"rule      admin-only"}},
		{[]string{"--scopes", "time", "wipe"}, nil, 1, []string{"rule      scope"}},
		{[]string{"--register", "x"}, []string{"FARHAND_REGISTER_ALLOW=y"}, 1, []string{"rule      register-allow"}},
		{[]string{"vault"}, nil, 0, []string{"allowed"}},
		{[]string{"--over-mcp", "--model=false", "vault"}, nil, 1, []string{"rule      vault"}},
		{[]string{"--over-mcp", "diary"}, nil, 1, []string{"rule      diary"}}, // such a call is a model's
		{[]string{"--over-mcp", "--model=false", "diary"}, nil, 0, []string{"allowed"}},
		{[]string{"mail"}, nil, 0,
			[]string{"effects   changes, open world\n  approval  argument from outside (rule mail)"}},
		{[]string{"mail"}, nil, 0, []string{"to        /to /cc\n"}},
		{[]string{"fetch"}, nil, 0, []string{"effects   open world\n",
			"approval  argument from outside: URLs only, because the tool only reads (rule fetch)"}},
		{[]string{"--role", "user", "x"}, nil, 2, []string{"There is no role"}},
		{[]string{"--context", "groop", "x"}, nil, 2, []string{"must be main, group"}},
		{[]string{"--level", "high", "x"}, nil, 2, []string{"security_level"}},
		{[]string{"--effect", "evil", "x"}, nil, 2, []string{"--effect"}},
		{[]string{"--source", "mars", "x"}, nil, 2, []string{"--source"}},
		{[]string{"a b"}, nil, 2, []string{"name"}},
	} {
		code, out := policyRun(t, append(tt.env, "FARHAND_POLICY_FILE="+file),
			append([]string{"explain"}, tt.args...)...)
		if code != tt.code {
			t.Errorf("%v: exit %d: %s", tt.args, code, out)
		}
		for _, want := range tt.want {
			if !strings.Contains(out, want) {
				t.Errorf("%v: no %q in:\n%s", tt.args, want, out)
			}
		}
	}
	code, out := policyRun(t, nil, "explain", "--file", policyFile(t, "version: 2"), "x")
	if code != 2 || !strings.Contains(out, "1:10: version must be 1") {
		t.Errorf("a bad file: %d %s", code, out)
	}
}

package commands_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/node/commands"
)

// host is a scripted node host with rules about commands. It answers as that of 2026.9.6.
type host struct {
	*testing.T
	platform      string
	security, ask string
	prepares      bool
	binds         bool // system.run.prepare makes a plan
	old           bool // allow-once needs no plan
	ran           int
	asked         []string // commands in order
}

func (h *host) answer(inv commands.Invocation) commands.Answer {
	h.Helper()
	var p struct {
		Command          []string
		Security, Ask    string
		Approved         bool
		ApprovalDecision string
		TimeoutMs        int64
		Cwd              string
		SystemRunPlan    json.RawMessage
	}
	if err := json.Unmarshal(inv.Params, &p); err != nil {
		h.Fatalf("%s: %v", inv.Params, err)
	}
	h.asked = append(h.asked, inv.Command)
	plan := `{"argv":["/bin/sh","-lc","id"],"cwd":"/real/home","commandText":"/bin/sh -lc id",` +
		`"agentId":null,"sessionKey":null,"policySnapshot":{"h":1}}`
	if inv.Command == "system.run.prepare" {
		if p.Security != "full" || p.Ask != "off" || inv.Timeout != 15*time.Second {
			h.Errorf("prepare: %s, %v", inv.Params, inv.Timeout)
		}
		if !h.binds {
			return commands.Answer{Failure: &commands.Failure{
				Code: "INVALID_REQUEST", Message: "SYSTEM_RUN_DENIED: approval cannot safely bind this command",
			}}
		}
		return commands.Answer{Payload: mustJSON(`{"plan":` + plan + `,"execPolicy":{"security":"` + h.security +
			`","ask":"` + h.ask + `"}}`)}
	}
	refused := func(code, why string) commands.Answer {
		return commands.Answer{Failure: &commands.Failure{Code: code, Message: why}}
	}
	const denied = "SYSTEM_RUN_DENIED"
	switch planned := string(p.SystemRunPlan) == plan; {
	case planned && p.Cwd != "/real/home":
		h.Errorf("run: not by the plan: %s", inv.Params)
	case h.security == "deny":
		return refused(denied, "SYSTEM_RUN_DISABLED: security=deny")
	case p.Approved && h.ask == "off":
		h.Errorf("a decision for a node that does not ask: %s", inv.Params)
	case p.Approved && !planned && !h.old:
		return refused("INVALID_REQUEST", "explicit approval requires matching systemRunPlan")
	case p.Approved:
		if p.ApprovalDecision != "allow-once" {
			h.Errorf("run: %s", inv.Params)
		}
	case h.ask == "always" && h.old:
		return refused("UNAVAILABLE", "SYSTEM_RUN_DENIED: approval required")
	case h.ask == "always":
		return refused(denied, "SYSTEM_RUN_DENIED: approval required")
	case h.security == "allowlist" && h.ask == "off":
		return refused(denied, "SYSTEM_RUN_DENIED: allowlist miss")
	case h.security == "allowlist":
		return refused(denied, "SYSTEM_RUN_DENIED: approval required")
	}
	h.ran++
	return commands.Answer{Payload: mustJSON(`{"exitCode":0,"timedOut":false,"success":true,"stdout":"ok","stderr":"",` +
		`"error":null}`)}
}

// play plays one call of run.
func (h *host) play(approved bool) commands.Step {
	h.Helper()
	names := []string{"system.run"}
	if h.prepares {
		names = append(names, "system.run.prepare")
	}
	c := catalogOf(h.platform, names...)
	inv, err := c.Invoke("run", commands.Call{Args: mustJSON(`{"command":"id"}`), Left: time.Minute,
		Approved: approved})
	if err != nil {
		h.Fatal(err)
	}
	for range 4 {
		step := commands.After(c, "run", inv, h.answer(inv))
		if step.Invoke == nil {
			return step
		}
		inv = *step.Invoke
	}
	h.Fatal("the call does not end")
	return commands.Step{}
}

// A person is asked once: by the gateway, or because the node asks. A command runs at most once, and never against the
// node's rules.
func TestOneQuestion(t *testing.T) {
	const direct, planned = "system.run", "system.run system.run.prepare system.run"
	for _, tt := range []struct {
		host
		approved bool
		asks     bool // the call goes back to be asked about
		ran      int
		commands string
	}{
		{host{security: "full", ask: "off", prepares: true}, false, false, 1, direct},
		{host{security: "full", ask: "off", prepares: true}, true, false, 1, direct},
		{host{security: "full", ask: "always", prepares: true, binds: true}, false, true, 0, direct},
		{host{security: "full", ask: "always", prepares: true, binds: true}, true, false, 1, planned},
		{host{security: "allowlist", ask: "on-miss", prepares: true, binds: true}, false, true, 0, direct},
		{host{security: "allowlist", ask: "on-miss", prepares: true, binds: true}, true, false, 1, planned},
		{host{security: "allowlist", ask: "off", prepares: true, binds: true}, true, false, 0, direct},
		{host{security: "allowlist", ask: "off", prepares: true, binds: true}, false, false, 0, direct},
		{host{platform: "macos", security: "allowlist", ask: "off", prepares: true, binds: true}, true, false, 0,
			"system.run.prepare system.run"},
		{host{security: "full", ask: "always", prepares: true}, true, false, 0, planned},
		{host{security: "full", ask: "always", prepares: true, old: true}, true, false, 1, planned},
		{host{security: "full", ask: "always", old: true}, true, false, 1, "system.run system.run"},
		{host{security: "full", ask: "always", old: true}, false, true, 0, direct},
		{host{security: "deny", ask: "off", prepares: true, binds: true}, true, false, 0, direct},
		{host{platform: "macos", security: "full", ask: "always", prepares: true, binds: true}, true, false, 1,
			"system.run.prepare system.run"},
		{host{platform: "macos", security: "full", ask: "off", prepares: true, binds: true}, true, false, 1,
			"system.run.prepare system.run"},
		{host{platform: "macos", security: "full", ask: "off", prepares: true}, true, false, 1,
			"system.run.prepare system.run"},
		{host{platform: "macos", security: "full", ask: "off", prepares: true, binds: true}, false, false, 1, direct},
	} {
		h := tt.host
		h.T = t
		step := h.play(tt.approved)
		if (step.Ask != "") != tt.asks || h.ran != tt.ran || strings.Join(h.asked, " ") != tt.commands ||
			!tt.asks && step.Result.Success != (tt.ran == 1) {
			t.Errorf("%+v: ran %d, %v, %+v", tt, h.ran, h.asked, step)
		}
		if !h.binds && !h.old && h.security == "full" && tt.ran == 0 && !tt.asks && h.security != "deny" &&
			!strings.Contains(step.Result.Output, "cannot safely bind") {
			t.Errorf("a node that makes no plan does not say why: %q", step.Result.Output)
		}
	}
}

// A plan that cannot be read ends the call, and nothing runs.
func TestWrongPlans(t *testing.T) {
	c := catalogOf("macos", "system.run", "system.run.prepare")
	inv, err := c.Invoke("run", commands.Call{Args: mustJSON(`{"command":"python3 x.py","cwd":"/a"}`), Approved: true})
	if err != nil || string(inv.Params) !=
		`{"command":["python3","x.py"],"cwd":"/a","security":"full","ask":"off"}` {
		t.Fatalf("%s %v", inv.Params, err)
	}
	for _, a := range []commands.Answer{{Payload: mustJSON(`{}`)}, {Payload: mustJSON(`{"plan":{"argv":"x"}}`)}, {}} {
		if step := commands.After(c, "run", inv, a); step.Invoke != nil || step.Ask != "" || step.Result.Success ||
			step.Result.Output == "" {
			t.Errorf("%+v: %+v", a, step)
		}
	}
	absent := commands.Answer{Failure: &commands.Failure{Code: "UNAVAILABLE", Message: "command not supported"}}
	if step := commands.After(c, "run", inv, absent); step.Invoke == nil || step.Invoke.Command != "system.run" {
		t.Errorf("a node without prepare: %+v", step)
	}
}

// A line that is one program with plain arguments is planned as that, any other by a shell.
func TestBindableLines(t *testing.T) {
	c := catalogOf("macos", "system.run", "system.run.prepare")
	for line, want := range map[string]string{
		`uname -a`:                   `["uname","-a"]`,
		"  git \t commit -m 'a b' x": `["git","commit","-m","a b","x"]`,
		`echo "a'b" c=d ''`:          `["echo","a'b","c=d",""]`,
		`grep a"b"'c'`:               `["grep","abc"]`,
		`a; b`:                       `["/bin/sh","-c","a; b"]`,
		`a | b`:                      `["/bin/sh","-c","a | b"]`,
		`echo $HOME`:                 `["/bin/sh","-c","echo $HOME"]`,
		`echo "$HOME"`:               `["/bin/sh","-c","echo \"$HOME\""]`,
		`ls *`:                       `["/bin/sh","-c","ls *"]`,
		`X=1 ls`:                     `["/bin/sh","-c","X=1 ls"]`,
		`echo 'a`:                    `["/bin/sh","-c","echo 'a"]`,
		`ls ~`:                       `["/bin/sh","-c","ls ~"]`,
		`''`:                         `["/bin/sh","-c","''"]`,
		"a\nb":                       `["/bin/sh","-c","a\nb"]`,
	} {
		args, err := json.Marshal(map[string]string{"command": line})
		if err != nil {
			t.Fatal(err)
		}
		inv, err := c.Invoke("run", commands.Call{Args: mustJSON(string(args)), Approved: true})
		var got struct{ Command json.RawMessage }
		if err == nil {
			err = json.Unmarshal(inv.Params, &got)
		}
		if err != nil || inv.Command != "system.run.prepare" || string(got.Command) != want {
			t.Errorf("%q: %s, want %s, %v", line, got.Command, want, err)
		}
	}
}

// Each platform has its shell, and a command is killed before its caller stops waiting.
func TestShells(t *testing.T) {
	for platform, want := range map[string]string{
		"windows":    `{"command":["cmd.exe","/d","/s","/c","id"],"timeoutMs":8000,"suppressNotifyOnExit":true}`,
		"Windows 11": `{"command":["cmd.exe","/d","/s","/c","id"],"timeoutMs":8000,"suppressNotifyOnExit":true}`,
		"darwin":     `{"command":["/bin/sh","-c","id"],"timeoutMs":8000,"suppressNotifyOnExit":true}`,
		"linux":      `{"command":["/bin/sh","-lc","id"],"timeoutMs":8000,"suppressNotifyOnExit":true}`,
		"":           `{"command":["/bin/sh","-lc","id"],"timeoutMs":8000,"suppressNotifyOnExit":true}`,
	} {
		inv, err := catalogOf(platform, "system.run").Invoke("run",
			commands.Call{Args: mustJSON(`{"command":"id"}`), Left: 10 * time.Second})
		if err != nil || string(inv.Params) != want {
			t.Errorf("%q: %s, %v", platform, inv.Params, err)
		}
	}
	inv, _ := catalogOf("linux", "system.run").Invoke("run",
		commands.Call{Args: mustJSON(`{"command":"id","timeout_ms":3000}`), Left: 10 * time.Second})
	if !strings.Contains(string(inv.Params), `"timeoutMs":3000,`) {
		t.Errorf("%s", inv.Params)
	}
}

// Plug-in tools have their own schemas. Their commands are no tools, and known names stay those of commands.
func TestPluginTools(t *testing.T) {
	var tools []json.RawMessage
	for _, text := range []string{
		`{"pluginId":"gh","name":"issues","description":"Lists issues.","command":"gh.issues",` +
			`"parameters":{"type":"object","properties":{"repo":{"type":"string"}}}}`,
		`{"pluginId":"node-mcp","name":"notify","description":"x","command":"mcp.tools.call.v1",` +
			`"mcp":{"server":"s","tool":"say"}}`,
		`{"pluginId":"node-mcp","name":"notify","description":"y","command":"mcp.tools.call.v1",` +
			`"mcp":{"server":"s2","tool":"say"}}`,
		`{"pluginId":"p","name":"undeclared","description":"x","command":"p.x"}`,
		`{"pluginId":"p","name":"bad name","description":"x","command":"gh.issues"}`,
		`{"pluginId":"p","name":"none","description":"x"}`, `[]`, `"x"`,
	} {
		tools = append(tools, json.RawMessage(text))
	}
	node := commands.Node{Commands: []string{"gh.issues", "mcp.tools.call.v1", "system.notify"}}
	c := commands.New(node, tools, commands.Rules{})
	var names []string
	for _, tool := range c.Tools() {
		names = append(names, tool.Name)
		var spec registry.ToolSpec
		if err := json.Unmarshal(tool.Definition, &spec); err != nil {
			t.Errorf("%s: %v", tool.Definition, err)
		}
		if spec, err := spec.Normalize(); err != nil || tool.Name != "notify" && spec.SecurityLevel != "user_confirm" {
			t.Errorf("%s: %s, %v", tool.Name, spec.SecurityLevel, err)
		}
	}
	if len(names) != 4 || names[0] != "issues" || names[1] != "node-mcp_notify" || names[3] != "notify" ||
		!strings.HasPrefix(names[2], "node-mcp_notify_") || len(c.LeftOut()) != 7 {
		t.Errorf("%q, left out %+v", names, c.LeftOut())
	}
	inv, err := c.Invoke("issues", commands.Call{Args: mustJSON(`{"repo":"a/b"}`)})
	if err != nil || inv.Command != "gh.issues" || string(inv.Params) != `{"repo":"a/b"}` {
		t.Errorf("%s %s %v", inv.Command, inv.Params, err)
	}
	inv, err = c.Invoke("node-mcp_notify", commands.Call{})
	if err != nil || string(inv.Params) != `{"server":"s","tool":"say","arguments":{}}` {
		t.Errorf("%s %v", inv.Params, err)
	}
	res, err := c.Result("node-mcp_notify", mustJSON(`{"content":[{"type":"text","text":"hi"},`+
		`{"type":"image","data":"`+encoded(picture)+`","mimeType":"image/png"}],"structuredContent":{"a":1}}`))
	if err != nil || !res.Success || res.Output != "hi" || len(res.Parts) != 1 || res.Structured.String() != `{"a":1}` {
		t.Errorf("%+v %v", res, err)
	}
	if res, err = c.Result("node-mcp_notify", mustJSON(`{"content":[],"isError":true}`)); err != nil || res.Success {
		t.Errorf("%+v %v", res, err)
	}
	off := commands.New(node, tools, commands.Rules{NoPluginTools: true})
	if len(off.Tools()) != 2 { // gh_issues and notify, as commands
		t.Errorf("switched off: %+v", off.Tools())
	}
}

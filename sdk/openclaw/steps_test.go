package openclaw_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/internal/testkit"
)

// steps are what people do with a node, in an order that a node host can do them in.
var steps = []step{
	{"pair", "pairs: waits in the queue, is approved by `farhand pair approve`, connects", (*bench).pair},
	{"list", "is listed by both pods", (*bench).list},
	{"http", "each tool is called over HTTP, by the other pod", (*bench).callHTTP},
	{"mcp", "each tool is called over MCP, by the other pod", (*bench).callMCP},
	{"chat", "each tool is called in a conversation, by the other pod", (*bench).callChat},
	{"plugin", "tools of the node's own MCP servers", (*bench).callPlugin},
	{"files", "a large file comes as a link", (*bench).callFile},
	{"cancel", "a call that its caller cancels is cancelled at the node", (*bench).cancel},
	{"ask", "the node's own rules ask for approval: one question, here", (*bench).ask},
	{"killed", "killed: its tools go; started again: they come back, without pairing", (*bench).killed},
	{"podDies", "its pod is killed: it comes back at the other", (*bench).podDies},
	{"podDrains", "its pod is drained: it gets 1012, and comes back at the other", (*bench).podDrains},
	{"revoked", "revoked: its connection ends with the reason", (*bench).revoked},
	{"token", "connects with a token of the role device, without the queue", (*bench).withToken},
	{"setup", "pairs with a setup code", (*bench).withSetupCode},
}

// pair starts the node without any credential. It is asked about, approved and connected.
func (b *bench) pair() string {
	b.host.connect()
	var id string
	b.await("the node waits to be paired", func() bool {
		_, answer := b.pods[1].do(b.t, http.MethodGet, "/api/pairings", nil)
		rows, _ := answer["pairings"].([]any)
		for _, row := range rows {
			id, _ = row.(object)["id"].(string)
			b.device, _ = row.(object)["device_id"].(string)
		}
		return id != ""
	})
	if out, ok := b.pods[1].cli(b.t, "pair", "approve", id); !ok {
		b.t.Fatalf("farhand pair approve: %s", out)
	}
	restarted := b.awaitTools(b.pods[0])
	if b.proxy.count(false, `"deviceToken":"fhd_`) != 1 {
		b.t.Error("the node did not get its credential, or got it more than once")
	}
	if restarted {
		return "yes; start it again after the approval"
	}
	return ""
}

// awaitTools waits until a pod lists tools of the node, and reports whether the node host had ended before and was
// started again, as a service manager does.
func (b *bench) awaitTools(p *pod) (restarted bool) {
	b.t.Helper()
	b.await("the node has tools", func() bool {
		select {
		case <-b.host.done:
			restarted = true
			b.host.connect()
		default:
		}
		return len(p.tools(b.t, b.device)) > 0
	})
	return restarted
}

// await is await that shows what the node printed if it fails.
func (b *bench) await(what string, ok func() bool) {
	b.t.Helper()
	defer func() {
		if b.t.Failed() {
			b.t.Logf("the node host printed:\n%s", b.host.printed())
		}
	}()
	await(b.t, what, ok)
}

// list looks at the node through both pods.
func (b *bench) list() string {
	for _, p := range b.pods {
		status, answer := p.do(b.t, http.MethodGet, "/api/devices", nil)
		rows, _ := answer["devices"].([]any)
		if status != http.StatusOK || len(rows) != 1 || rows[0].(object)["device_id"] != b.device ||
			rows[0].(object)["online"] != true {
			b.t.Errorf("%s lists the devices %v", p.addr, answer)
		}
		if _, ok := p.tools(b.t, b.device)["run"]; !ok {
			b.t.Errorf("%s lists the tools %v", p.addr, p.tools(b.t, b.device))
		}
	}
	return ""
}

// outcome is a call of a tool.
type outcome struct {
	args object
	want string // in the output
	fail bool   // the program behind the command is missing here: the node's error is the answer
}

// calls are calls of all tools that node hosts have. Keys have no underscores.
func (b *bench) calls() map[string]outcome {
	folder := filepath.Join(b.host.home, "work")
	_ = os.Mkdir(folder, 0o700)
	note := filepath.Join(folder, "note.txt")
	must(b.t, os.WriteFile(note, []byte("a note"), 0o600))
	written := filepath.Join(folder, fmt.Sprintf("written-%d.txt", b.proxy.count(true)))
	return map[string]outcome{
		"run":              {args: object{"command": "echo on $((6 * 7))"}, want: "on 42"},
		"which":            {args: object{"bins": []string{"sh"}}, want: "/bin/sh"},
		"execapprovalsget": {want: "hash"},
		"fslistdir":        {args: object{"path": b.host.home}, want: folder},
		"dirlist":          {args: object{"path": folder}, want: "note.txt"},
		"dirfetch":         {args: object{"path": folder}},
		"filestat":         {args: object{"path": note}, want: "6"},
		"filefetch":        {args: object{"path": note}},
		"filewrite":        {args: object{"path": written, "text": "hello"}, want: written},
		"browserproxy":     {args: object{"method": "GET", "path": "/tabs"}, want: "tabs"},
		"ollamamodels":     {fail: true, want: "Ollama"},
		"ollamachat": {fail: true, args: object{
			"model": "none", "messages": []object{{"role": "user", "content": "hello"}}, "prompt": "hello",
		}},
		"terminalupload": {args: object{"name": "a.txt", "content_base64": "aGk="}, want: "a.txt"},
		"greetergreet":   {args: object{"name": "Ada"}, want: "hello Ada"},
	}
}

// skipped are tools that a test must not call for each way.
var skipped = []string{"execapprovalsset"} // step ask calls it

// each calls each tool of the node that a model may call, or all. call returns the state of the call and its output.
func (b *bench) each(all bool, call func(tool string, args object) (failed bool, output string)) string {
	calls, n := b.calls(), 0
	for tool, row := range b.pods[1].tools(b.t, b.device) {
		if row["security_level"] == "admin_only" && !all {
			continue
		}
		key := strings.ToLower(strings.ReplaceAll(tool, "_", ""))
		c, ok := calls[key]
		if !ok {
			if !slices.Contains(skipped, key) {
				b.t.Errorf("the tests do not know how to call %s", tool)
			}
			continue
		}
		if c.args == nil {
			c.args = object{}
		}
		failed, output := call(tool, c.args)
		if failed != c.fail || !strings.Contains(output, c.want) {
			b.t.Errorf("%s: failed %v, %s", tool, failed, output)
		}
		n++
	}
	return fmt.Sprintf("yes, %d", n)
}

// callHTTP calls each tool through the pod that does not have the node.
func (b *bench) callHTTP() string {
	return b.each(true, func(tool string, args object) (bool, string) { return b.call(b.other(), tool, args) })
}

// call calls a tool over HTTP.
func (b *bench) call(p *pod, tool string, args object) (failed bool, output string) {
	b.t.Helper()
	status, answer := p.do(b.t, http.MethodPost, "/api/tools/"+tool+"/call", object{
		"args": args, "target": object{"device_id": b.device}, "timeout_ms": 60_000,
	})
	text, _ := json.Marshal(answer)
	return status != http.StatusOK || answer["success"] != true, strings.ReplaceAll(string(text), `\\`, `\`)
}

// other returns the pod that does not have the node.
func (b *bench) other() *pod {
	b.t.Helper()
	if b.home() == b.pods[0] {
		return b.pods[1]
	}
	return b.pods[0]
}

// home returns the pod that has the node.
func (b *bench) home() *pod {
	b.t.Helper()
	_, answer := b.pods[0].do(b.t, http.MethodGet, "/api/sessions?connected=true", nil)
	rows, _ := answer["sessions"].([]any)
	for _, row := range rows {
		if row := row.(object); row["device_id"] == b.device && row["pod"] == b.pods[1].id() {
			return b.pods[1]
		}
	}
	return b.pods[0]
}

// approve allows all calls that ask for approval until stop is called: a person does so beside a model, whose calls
// these are.
func (b *bench) approve() (stop func()) {
	stopped, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stopped:
				return
			case <-tick.C:
			}
			_, answer := b.pods[0].do(b.t, http.MethodGet, "/api/approvals", nil)
			rows, _ := answer["approvals"].([]any)
			for _, row := range rows {
				id, _ := row.(object)["id"].(string)
				b.pods[0].do(b.t, http.MethodPost, "/api/approvals/"+id, object{"decision": "allow-once"})
			}
		}
	}()
	return func() {
		close(stopped)
		<-ended
	}
}

// callMCP calls each tool over MCP.
func (b *bench) callMCP() string {
	defer b.approve()()
	p, session := b.other(), b.session()
	return b.each(false, func(tool string, args object) (bool, string) {
		return b.callOverMCP(p, session, tool, args)
	})
}

// callOverMCP calls a tool as an MCP client does. Such calls count as a model's.
func (b *bench) callOverMCP(p *pod, session, tool string, args object) (failed bool, output string) {
	b.t.Helper()
	_, answer := p.do(b.t, http.MethodPost, "/mcp/sessions/"+session, object{
		"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": object{"name": tool, "arguments": args},
	})
	result, _ := answer["result"].(object)
	text, _ := json.Marshal(answer)
	return result == nil || result["isError"] == true, string(text)
}

// session returns the id of the node's session.
func (b *bench) session() string {
	b.t.Helper()
	for _, row := range b.pods[0].tools(b.t, b.device) {
		id, _ := row["session_id"].(string)
		return id
	}
	return ""
}

// callChat lets a model call each tool.
func (b *bench) callChat() string {
	defer b.approve()()
	p, session := b.other(), b.session()
	return b.each(false, func(tool string, args object) (bool, string) {
		_, answer := p.do(b.t, http.MethodPost, "/api/sessions/"+session+"/messages", object{
			"content": message(b.t, tool, args), "stream": false,
		})
		calls, _ := answer["tool_calls"].([]any)
		text, _ := json.Marshal(answer)
		if len(calls) != 1 {
			return true, string(text)
		}
		return calls[0].(object)["status"] != "completed", string(text)
	})
}

// callPlugin calls a tool of an MCP server that the node host runs.
//
// Such a tool comes after the node has connected, so it waits until an approver looks at it.
func (b *bench) callPlugin() string {
	if b.results.protocol == 3 || b.proxy.count(true, "node.pluginTools.update", "greet") == 0 {
		return "no"
	}
	if out, ok := b.pods[1].cli(b.t, "devices", "approve", b.device); !ok {
		b.t.Fatalf("farhand devices approve: %s", out)
	}
	b.await("the tool is offered", func() bool { return b.tool("greeter_greet") })
	failed, output := b.call(b.other(), "greeter_greet", object{"name": "Ada"})
	if failed || !strings.Contains(output, "hello Ada") {
		b.t.Error(output)
	}
	return ""
}

// tool reports whether the node offers a tool.
func (b *bench) tool(name string) bool {
	_, ok := b.pods[0].tools(b.t, b.device)[name]
	return ok
}

// callFile fetches a file that is too large for an answer's text.
func (b *bench) callFile() string {
	if !b.tool("file_fetch") {
		return "no"
	}
	path := filepath.Join(b.host.home, "large.bin")
	must(b.t, os.WriteFile(path, make([]byte, 3<<20), 0o600))
	p := b.other()
	status, answer := p.do(b.t, http.MethodPost, "/api/tools/file_fetch/call", object{
		"args": object{"path": path}, "target": object{"device_id": b.device}, "timeout_ms": 60_000,
	})
	parts, _ := answer["parts"].([]any)
	if status != http.StatusOK || len(parts) != 1 || parts[0].(object)["size"] != float64(3<<20) {
		b.t.Fatalf("%d %v", status, answer)
	}
	if link, _ := parts[0].(object)["url"].(string); link == "" {
		b.t.Errorf("the file has no link: %v", parts)
	}
	return ""
}

// cancel cancels a call that runs. The node is told.
func (b *bench) cancel() string {
	status, answer := b.other().do(b.t, http.MethodPost, "/api/tools/run/call", object{
		"args": object{"command": "sleep 600"}, "target": object{"device_id": b.device}, "mode": "async",
	})
	id, _ := answer["call_id"].(string)
	if status != http.StatusAccepted {
		b.t.Fatalf("%d %v", status, answer)
	}
	b.await("the node has the call", func() bool {
		return b.proxy.count(false, "node.invoke.request",
			"sleep 600") > 0
	})
	if status, answer := b.other().do(b.t, http.MethodDelete, "/api/calls/"+id, nil); status >= http.StatusBadRequest {
		b.t.Errorf("%d %v", status, answer)
	}
	b.await("the node is told that the call ended", func() bool {
		return b.proxy.count(false, `"node.invoke.cancel"`, `"invokeId"`) > 0
	})
	return ""
}

// ask lets the node's own rules demand approval of each command, and a model call one. The policy asks too.
func (b *bench) ask() string {
	if !b.tool("exec_approvals_set") {
		return "no"
	}
	rules := func(defaults object) {
		_, answer := b.pods[0].do(b.t, http.MethodPost, "/api/tools/exec_approvals_get/call", object{
			"args": object{}, "target": object{"device_id": b.device},
		})
		output, _ := answer["structured"].(object)
		if output == nil {
			text, _ := answer["output"].(string)
			_ = json.Unmarshal([]byte(text), &output)
		}
		hash, _ := output["hash"].(string)
		failed, out := b.call(b.pods[0], "exec_approvals_set", object{"base_hash": hash, "file": object{
			"version": 1, "defaults": defaults, "agents": object{},
		}})
		if failed {
			b.t.Fatalf("exec_approvals_set: %s", out)
		}
	}
	rules(object{"security": "allowlist", "ask": "always", "askFallback": "deny"})
	defer rules(object{"security": "full", "ask": "off"})
	session, done := b.session(), make(chan string, 1)
	go func() {
		failed, output := b.callOverMCP(b.pods[1], session, "run", object{"command": "uname -a"})
		done <- fmt.Sprint(failed, output)
	}()
	var approval string
	b.await("the node's question is in the queue", func() bool {
		select {
		case output := <-done:
			b.t.Fatalf("the call ended without a question: %s", output)
		default:
		}
		_, answer := b.pods[0].do(b.t, http.MethodGet, "/api/approvals", nil)
		rows, _ := answer["approvals"].([]any)
		if len(rows) > 1 {
			b.t.Fatalf("%d questions for one call: %v", len(rows), answer)
		}
		if len(rows) == 1 {
			approval, _ = rows[0].(object)["id"].(string)
		}
		return approval != ""
	})
	if status, answer := b.pods[0].do(b.t, http.MethodPost, "/api/approvals/"+approval,
		object{"decision": "allow-once"}); status != http.StatusOK {
		b.t.Fatalf("%d %v", status, answer)
	}
	b.await("the call ends", func() bool {
		_, answer := b.pods[0].do(b.t, http.MethodGet, "/api/approvals", nil)
		if rows, _ := answer["approvals"].([]any); len(rows) > 0 && rows[0].(object)["id"] != approval {
			b.t.Fatalf("a second question: %v", rows)
		}
		return len(done) == 1
	})
	if output := testkit.Receive(b.t, "the call's end", done); !strings.Contains(output, "false") ||
		!strings.Contains(output, "Linux") {
		b.t.Errorf("the approved call: %s", output)
	}
	return ""
}

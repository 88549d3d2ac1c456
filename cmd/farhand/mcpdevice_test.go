package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/redisstore/redistest"
)

// mcpPackage returns the Node.js 22 that the tests of MCP run on, and the path of a file of their packages.
func mcpPackage(t *testing.T, file string) (node, path string) {
	t.Helper()
	root, err := filepath.Abs("../../.cache/mcp/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := filepath.Glob(root + "/node-*/bin/node")
	path = filepath.Join(root, file)
	if _, missing := os.Stat(path); err != nil || len(nodes) == 0 || missing != nil {
		t.Fatal("the packages for tests of MCP are missing; install them with .ci/deps")
	}
	return nodes[0], path
}

// TestServerEverythingAsADevice connects an MCP server of another vendor, through `farhand device --mcp` and
// through a bare pipe. It is called on another pod, over HTTP, by a model and by a client of MCP; it is killed, started
// again, and back.
func TestServerEverythingAsADevice(t *testing.T) {
	t.Parallel()
	node, everything := mcpPackage(t, "@modelcontextprotocol/server-everything/dist/index.js")
	model := scripted.OpenAIFunc(t, func(r scripted.Request) scripted.Step {
		if role, said := lastOf(r); role == "tool" {
			return scripted.Reply(scripted.Text("It says: ", said))
		}
		return scripted.Reply(scripted.Calls(scripted.Call{Name: "get-sum", Args: `{"a":20,"b":22}`}))
	})
	pods := startFleet(t, 2, redistest.Single(t), agentSettings(providerOpenAI, model)...)
	asked, dialed := pods[0].url, pods[1].url
	pid := filepath.Join(t.TempDir(), "pid")
	device := start(t, []string{"FARHAND_TOKEN=" + fleetToken, "FARHAND_URL=" + dialed}, farhandBinary, "device",
		"--device", "everything", "--mcp", fmt.Sprintf("echo $$ > %s; exec %s %s stdio", pid, node, everything))
	const offered = 12 // without the one that is a task of MCP only
	listed := func() bool { return toolsOf(t, asked)["everything"] == offered }
	eventually(t, waitLimit, "its tools are listed on the other pod", listed)

	call := func(session, tool, args string) (a struct {
		answer
		Structured json.RawMessage `json:"structured"`
		Parts      []struct {
			Type     string
			MIMEType string `json:"mime_type"`
			Size     int
		}
	}) {
		t.Helper()
		_, raw := request(t, http.MethodPost, asked+"/api/sessions/"+session+"/tools/"+tool+"/call",
			`{"args":`+args+`}`)
		if err := json.Unmarshal(raw, &a); err != nil || !a.Success {
			t.Errorf("%s: %v %s", tool, err, raw)
		}
		return a
	}
	if a := call("everything", "echo", `{"message":"hello"}`); !strings.Contains(a.Output, "hello") {
		t.Errorf("%+v", a)
	}
	if a := call("everything", "get-env", `{}`); strings.Contains(a.Output, fleetToken) {
		t.Error("the server was given the token of its device")
	}
	if a := call("everything", "get-structured-content", `{"location":"Chicago"}`); !strings.Contains(
		string(a.Structured), `"temperature"`) {
		t.Errorf("%s", a.Structured)
	}
	if a := call("everything", "get-tiny-image", `{}`); len(a.Parts) != 1 || a.Parts[0].MIMEType != "image/png" ||
		a.Parts[0].Size == 0 || !strings.Contains(a.Output, "image") {
		t.Errorf("%+v", a)
	}
	code, out, errOut := command(t, []string{"FARHAND_URL=" + asked, "FARHAND_TOKEN=" + fleetToken}, "call",
		"trigger-long-running-operation", `{"duration":0.5,"steps":2}`, "--progress")
	if code != 0 || !strings.Contains(out, "completed") || !strings.Contains(errOut, "50 %") {
		t.Errorf("exit %d\n%s\n%s", code, out, errOut)
	}
	wantSaid(t, asked, "everything", "The sum of 20 and 22 is 42")

	status, raw := mcpCall(t, asked+"/mcp/sessions/everything", `{"name":"get-sum","arguments":{"a":20,"b":22}}`)
	if status != http.StatusOK || !strings.Contains(string(raw), "The sum of 20 and 22 is 42") {
		t.Errorf("over MCP: %d %s", status, raw)
	}

	start(t, nil, node, "testdata/mcp/pipe.mjs", "ws"+strings.TrimPrefix(dialed, "http")+
		"/ws/mcp?device_id=piped&token="+fleetToken, node, everything, "stdio")
	eventually(t, waitLimit, "tools come through a bare pipe", func() bool {
		return toolsOf(t, asked)["piped"] == offered
	})
	if a := call("piped", "echo", `{"message":"pipe"}`); !strings.Contains(a.Output, "pipe") {
		t.Errorf("%+v", a)
	}

	var running struct {
		CallID string `json:"call_id"`
		State  string
	}
	recordIs := func(state string) func() bool {
		return func() bool {
			_, raw := request(t, http.MethodGet, asked+"/api/calls/"+running.CallID, "")
			return json.Unmarshal(raw, &running) == nil && running.State == state
		}
	}
	_, raw = request(t, http.MethodPost, asked+"/api/sessions/everything/tools/trigger-long-running-operation/call",
		`{"args":{"duration":3000,"steps":3000},"mode":"async","timeout_ms":600000}`)
	if err := json.Unmarshal(raw, &running); err != nil || running.CallID == "" {
		t.Fatalf("%v %s", err, raw)
	}
	eventually(t, waitLimit, "the server works on a call", recordIs("running"))
	former := killPID(t, pid, syscall.SIGKILL)
	eventually(t, waitLimit, "the call that it had is lost", recordIs("lost"))
	eventually(t, waitLimit, "it has been started again", func() bool { return readPID(pid) != former && listed() })
	if a := call("everything", "echo", `{"message":"again"}`); !strings.Contains(a.Output, "again") {
		t.Errorf("%+v", a)
	}
	device.signal(syscall.SIGTERM)
	if code := device.exit(t); code != 0 {
		t.Errorf("farhand device ended with %d\n%s", code, device.out)
	}
	if err := syscall.Kill(readPID(pid), 0); err != syscall.ESRCH {
		t.Errorf("the server runs on: %v", err)
	}
	eventually(t, waitLimit, "its tools are gone", func() bool { return toolsOf(t, asked)["everything"] == 0 })
}

// wantSaid asks for a chat completion with the tools of a session, and checks what is in its text.
func wantSaid(t *testing.T, url, session, want string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url+"/v1/chat/completions",
		strings.NewReader(`{"model":"farhand","messages":[{"role":"user","content":"sum"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+fleetToken)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Farhand-Session", session)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var said struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.NewDecoder(resp.Body).Decode(&said); err != nil || len(said.Choices) != 1 ||
		!strings.Contains(said.Choices[0].Message.Content, want) {
		t.Errorf("%d: %v %+v", resp.StatusCode, err, said)
	}
}

// mcpCall calls a tool as a client of MCP does.
func mcpCall(t *testing.T, url, params string) (status int, answer []byte) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url,
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}`))
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{
		"Authorization": "Bearer " + fleetToken, "Content-Type": "application/json",
		"Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2025-11-25",
	} {
		req.Header.Set(key, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, answer
}

// readPID returns the process id in a file, zero if there is none.
func readPID(file string) int {
	text, _ := os.ReadFile(file)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid
}

func killPID(t *testing.T, file string, s syscall.Signal) (pid int) {
	t.Helper()
	pid = readPID(file)
	if pid <= 1 {
		t.Fatalf("%s names no process", file)
	}
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
	return pid
}

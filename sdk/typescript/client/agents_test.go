package client_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/internal/chromiumtest"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/ws/client"
)

// agent is a program with a helper.
type agent struct {
	name, file string
	model      func(testing.TB, func(scripted.Request) scripted.Step) *scripted.Server
	variable   string // of the model server's URL
	images     bool   // its library passes images of results on to this vendor
}

var agents = []agent{
	{"openai", "../../../examples/agent-openai-node/agent.js", scripted.OpenAIFunc, "OPENAI_BASE_URL", false},
	{"ai-sdk", "../../../examples/agent-ai-sdk/agent.js", scripted.OpenAIFunc, "OPENAI_BASE_URL", false},
	{"langchain", "../../../examples/agent-langchain-node/agent.js", scripted.OpenAIFunc, "OPENAI_BASE_URL", false},
	{"anthropic", "testdata/anthropic.mjs", scripted.AnthropicFunc, "ANTHROPIC_BASE_URL", true},
}

// TestAgents runs an agent of each library, whose device moves to another pod in mid-call, and one whose device does
// not: their models read the same, and they print the same.
func TestAgents(t *testing.T) {
	t.Parallel()
	redis := "FARHAND_REDIS_URL=" + redistest.Single(t)
	here, there := startPod(t, redis), startPod(t, redis)
	for _, a := range agents {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			device := "phone-" + a.name
			road := newRoad(t, here)
			began, release := make(chan struct{}, 1), make(chan struct{})
			connect(t, road.url(), device, photoTools(began, release)...)
			var heard [2]string
			for i, moves := range []bool{false, true} {
				model, p := a.run(t, here, device)
				testkit.Receive(t, "the call", began)
				if moves {
					road.lead(there)
					road.cut()
					testkit.Eventually(t, "the device is at the other pod",
						func() bool { return here.podOf(t, device) == there.id })
				}
				release <- struct{}{}
				lines, ok := p.rest(t)
				if !ok {
					t.Fatalf("the agent failed: %q", lines)
				}
				heard[i] = a.check(t, model, lines)
			}
			if heard[0] != heard[1] {
				t.Errorf("it can tell that the device has moved:\n%s\n%s", heard[0], heard[1])
			}
		})
	}
}

// photoTools are a tool whose calls wait, and one that fails.
func photoTools(began chan<- struct{}, release <-chan struct{}) []client.Option {
	photo := client.Tool{
		Name: "camera.snap", Description: "Take a picture.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"side":{"type":"string"}},"required":["side"]}`),
	}
	return []client.Option{
		client.WithTool(photo, func(ctx context.Context, call client.Call) (any, error) {
			began <- struct{}{}
			select {
			case <-release:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			part := client.Part{Type: "image", MIMEType: "image/png", Data: []byte("\x89PNG")}
			return client.Result{Output: "A dog\u202e\u200b, by the front camera.", Parts: []client.Part{part}}, nil
		}),
		client.WithTool(client.Tool{Name: "torch", Description: "Switch the torch on."},
			func(context.Context, client.Call) (any, error) { return nil, errBattery{} }),
	}
}

type errBattery struct{}

func (errBattery) Error() string { return "the battery is empty" }

// run starts the agent, whose model asks for a picture, then for the torch.
func (a agent) run(t *testing.T, p *pod, device string) (*scripted.Server, *program) {
	t.Helper()
	model := a.model(t, func(r scripted.Request) scripted.Step {
		results := 0
		for _, m := range r.Messages {
			if m.Role == provider.RoleTool {
				results++
			}
		}
		switch results {
		case 0:
			return scripted.Reply(scripted.Calls(scripted.Call{Name: "camera_snap", Args: `{"side":"front"}`}))
		case 1:
			return scripted.Reply(scripted.Calls(scripted.Call{Name: "torch", Args: `{}`}))
		default:
			return scripted.Reply(scripted.Text("I saw ", "a dog."))
		}
	})
	t.Cleanup(func() {
		for _, r := range model.Requests() {
			if t.Failed() {
				t.Logf("the model read %s: %s", r.Raw, r.Refused)
			}
		}
	})
	text, err := os.ReadFile(a.file)
	must(t, err)
	env := p.environment("OPENAI_API_KEY=none", "ANTHROPIC_API_KEY=none", "MODEL=scripted", a.variable+"="+model.URL)
	return model, startNode(t, env, string(text), device, "What do you see?")
}

// check returns all that the model read and the program printed.
func (a agent) check(t *testing.T, model *scripted.Server, lines []string) string {
	t.Helper()
	requests := model.Requests()
	if len(requests) != 3 {
		t.Fatalf("%d requests of the model: %q", len(requests), lines)
	}
	messages, err := json.Marshal(requests[2].Messages)
	must(t, err)
	tools, err := json.Marshal(requests[0].Tools)
	must(t, err)
	for _, r := range requests {
		if r.Refused != "" {
			t.Errorf("the vendor refuses: %s", r.Refused)
		}
	}
	printed := strings.Join(lines, "\n")
	for text, where := range map[string]string{
		"A dog, by the front camera.\\n[image, image/png, 4 bytes]": string(messages),
		"tool_failed: the battery is empty":                         string(messages),
		"Take a picture.":                                           string(tools),
		"I saw a dog.":                                              printed,
		"→ camera_snap":                                             printed,
	} {
		if !strings.Contains(where, text) {
			t.Errorf("%q is not in %s", text, where)
		}
	}
	if a.images && !strings.Contains(string(messages), "iVBORw==") {
		t.Errorf("the model does not see the picture: %s", messages)
	}
	return string(messages) + "\n" + string(tools) + "\n" + printed
}

// TestExamples runs those examples that are no agents with a helper: an MCP client, a device in Node.js, and a page.
func TestExamples(t *testing.T) {
	t.Parallel()
	files := httptest.NewUnstartedServer(nil)
	p := startPod(t, "FARHAND_ALLOWED_ORIGINS=http://"+files.Listener.Addr().String())
	env := p.environment()
	example := func(name, file string, args ...string) *program {
		text, err := os.ReadFile("../../../examples/" + name + "/" + file)
		must(t, err)
		return startNode(t, env, string(text), args...)
	}
	example("device-node", "device.js", "laptop").expect(t, "connected")
	for _, tt := range []struct {
		args []string
		ok   bool
		want string
	}{
		{[]string{"laptop"}, true, "count: Count to a number"},
		{[]string{"laptop", "host"}, true, "uptime_s"},
		{[]string{"laptop", "count", `{"to":3,"step_ms":1}`}, true, "counted to 3"},
		{[]string{"laptop", "count", `{"to":0}`}, false, "minimum: got 0, want 1"},
	} {
		lines, ok := example("agent-mcp-node", "agent.js", tt.args...).rest(t)
		if ok != tt.ok || !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, tt.want) }) {
			t.Errorf("%q (succeeded: %t): %q, want %q", tt.args, ok, lines, tt.want)
		}
	}

	dir := newProject(t)
	page, err := os.ReadFile("../../../examples/device-browser/index.html")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "index.html"), page, 0o600))
	files.Config.Handler = http.FileServer(http.Dir(dir))
	files.Start()
	t.Cleanup(files.Close)
	tab := chromiumtest.Open(t, chromiumtest.Start(t), func(string) {})
	tab.Show(files.URL + "/#url=" + p.url + "&token=" + token)
	testkit.Eventually(t, "the page is a device", func() bool {
		var list struct {
			Tools []struct{ Name string } `json:"tools"`
		}
		p.request(t, http.MethodGet, "/api/tools?device_id=page", nil, &list)
		return len(list.Tools) == 2
	})
	for _, tt := range []struct{ tool, want string }{
		{"show", "It is shown."}, {"screen", `"text":"<b>Hello</b>"`},
	} {
		var answer struct{ Output string }
		p.request(t, http.MethodPost, "/api/tools/"+tt.tool+"/call",
			map[string]any{"args": map[string]any{"text": "<b>Hello</b>"}}, &answer)
		if !strings.Contains(answer.Output, tt.want) {
			t.Errorf("%s: %q, want %q", tt.tool, answer.Output, tt.want)
		}
	}
}

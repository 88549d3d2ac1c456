package farhand_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/sandbox/docker/dockertest"
	"github.com/farhand/farhand/ws/client"
)

// handModel is a model that calls the tools it is told to, one in each answer, and then says that it is done.
type handModel struct {
	mu   sync.Mutex
	next []provider.ToolCall
	read []provider.Message // the results, as the model read them
}

func (*handModel) Name() string { return "hands" }

// Generate implements provider.Model.
func (m *handModel) Generate(
	_ context.Context, r provider.Request, emit func(provider.Delta),
) (provider.Answer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if last := r.Messages[len(r.Messages)-1]; last.Role == provider.RoleTool {
		m.read = append(m.read, last)
	}
	if len(m.next) > 0 {
		call := m.next[0]
		m.next = m.next[1:]
		return provider.Answer{
			Message: provider.Message{Role: provider.RoleAssistant, ToolCalls: []provider.ToolCall{call}},
			Stop:    provider.StopToolCalls,
		}, nil
	}
	emit(provider.Delta{Text: "done"})
	return provider.Answer{
		Message: provider.Message{Role: provider.RoleAssistant, Content: "done"}, Stop: provider.StopEnd,
	}, nil
}

// calls has the model call tools in its next turn.
func (m *handModel) calls(nameAndArgs ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next, m.read = nil, nil
	for i := 0; i < len(nameAndArgs); i += 2 {
		m.next = append(m.next, provider.ToolCall{
			ID: "c" + nameAndArgs[i], Name: nameAndArgs[i], Args: nameAndArgs[i+1],
		})
	}
}

// results returns what the model read of the tools it called.
func (m *handModel) results() []provider.Message {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.read
}

// home is a gateway with all of its own tools, and a device.
type home struct {
	*testing.T
	url   string
	model *handModel
	keys  map[string]string // by context, of a caller and of an admin
}

// answer is what a call came to.
type answer struct {
	status  int
	Success bool
	Output  string
	Error   string
	Code    string
	Detail  string
	Parts   []json.RawMessage

	Structured json.RawMessage
}

// call calls a tool over HTTP, with little time if a person will be asked: nobody answers.
func (h *home) call(key, tool, args string, asks bool) answer {
	h.Helper()
	timeout := map[bool]string{false: "20000", true: "500"}[asks]
	status, body := send(h.T, h.url+"/api/tools/"+tool+"/call", `{"timeout_ms":`+timeout+`,"args":`+args+`}`, key)
	a := answer{status: status}
	if err := json.Unmarshal([]byte(body), &a); err != nil {
		h.Fatalf("%s: %d %s", tool, status, body)
	}
	return a
}

// turn has the model call tools in a conversation with the device, where a person has named all arguments, and returns
// the status and the output of each.
func (h *home) turn(key, in string, nameAndArgs ...string) []toolReport {
	h.Helper()
	h.model.calls(nameAndArgs...)
	said, err := json.Marshal(map[string]string{"content": strings.Join(nameAndArgs, " "), "context": in})
	if err != nil {
		h.Fatal(err)
	}
	status, body := send(h.T, h.url+"/api/sessions/phone/messages", string(said), key)
	var reply struct {
		Calls []toolReport `json:"tool_calls"`
	}
	if err := json.Unmarshal([]byte(body), &reply); err != nil || status != http.StatusOK {
		h.Fatalf("turn: %d %s", status, body)
	}
	return reply.Calls
}

type toolReport struct {
	Name, Status, Output string
}

// newHome starts a gateway with what change says of its settings, and connects the device phone to it.
func newHome(t *testing.T, tools []deviceTool, change func(*farhand.Config), opts ...farhand.Option) *home {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "farhand") // programs of another user pass through it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	h := &home{T: t, model: &handModel{}, keys: make(map[string]string)}
	cfg := farhand.Config{Token: adminToken}
	cfg.WorkspaceDir, cfg.ApprovalTime = dir+"/w", 300*time.Millisecond
	change(&cfg)
	h.url = start(t, cfg, append(opts, farhand.WithModel(h.model))...)
	for _, in := range []string{"main", "group", "group sandboxed"} {
		for _, role := range []string{"caller", "admin"} {
			h.keys[role+" "+in] = makeKey(t, h.url,
				`{"name":"`+role+`","roles":["`+role+`"],"context":"`+in+`"}`).Key
		}
	}
	h.device(tools)
	return h
}

// deviceTool is a tool of the device.
type deviceTool struct {
	client.Tool
	client.Handler
}

// device connects the device phone, which stays until the end of the test.
func (h *home) device(tools []deviceTool) {
	h.Helper()
	ready := make(chan struct{})
	var once sync.Once
	opts := []client.Option{
		client.WithToken(adminToken), client.WithSession("phone"), client.WithDevice("phone", "Phone", "test"),
		client.WithState(func(s client.State) {
			if s.Phase == client.PhaseConnected {
				once.Do(func() { close(ready) })
			}
		}),
	}
	for _, tool := range tools {
		opts = append(opts, client.WithTool(tool.Tool, tool.Handler))
	}
	c, err := client.New(h.url, opts...)
	if err != nil {
		h.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	h.Cleanup(func() {
		cancel()
		<-ended
	})
	select {
	case <-ready:
	case err := <-ended:
		h.Fatal(err)
	case <-time.After(limit):
		h.Fatal("the device is not ready")
	}
}

// boxed gives a gateway a real engine of containers or, where none can run, the weaker sandbox.
func boxed(t *testing.T, c *farhand.ToolsConfig) {
	t.Helper()
	if err := dockertest.Available(); err != nil {
		t.Log("no containers:", err)
		c.Sandbox = farhand.SandboxLandlock
		return
	}
	engine, err := dockertest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Stop)
	c.Sandbox, c.DockerHost, c.SandboxImage = farhand.SandboxDocker, engine.Host(), dockertest.Image
}

// A model that reaches people a second time with the same arguments in one turn waits for a person, who is not there.
func TestPeopleAreReachedTwiceOnlyWithApproval(t *testing.T) {
	t.Parallel()
	notify := deviceTool{
		client.Tool{Name: "notify", Effects: &client.Effects{Class: "people"}},
		func(context.Context, client.Call) (any, error) { return "shown", nil },
	}
	h := newHome(t, []deviceTool{notify}, func(*farhand.Config) {})
	const once, other = `{"text":"tea"}`, `{"text":"milk"}`
	for range 2 { // each turn may reach people once
		calls := h.turn(h.keys["caller main"], "main", "notify", once, "notify", other, "notify", once)
		if len(calls) != 3 || calls[0].Status != "completed" || calls[1].Status != "completed" ||
			calls[2].Status != "failed" || !strings.Contains(calls[2].Output, "rule repeated") {
			t.Errorf("%+v", calls)
		}
	}
}

package upstream_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/sandbox/host"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/agent/tools/upstream"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
)

// testMode is the variable that makes this program an MCP server.
const testMode = "TEST_MCP_SERVER"

// self is what Main of package host returned to TestMain.
var self host.Program

// TestMain runs the tests, or in their place a server that one of them started.
func TestMain(m *testing.M) {
	self = host.Main()
	switch os.Getenv(testMode) {
	case "":
		goleak.VerifyTestMain(m)
	case "good":
		syscall.Exit(exitCode(newServer().Run(context.Background(), &mcp.StdioTransport{})))
	case "batches":
		syscall.Exit(exitCode(batches()))
	case "deaf":
		syscall.Exit(exitCode(deaf()))
	case "busy":
		syscall.Exit(exitCode(busy()))
	case "stubborn":
		syscall.Exit(stubborn())
	case "conformance":
		syscall.Exit(conformanceClient(os.Args[len(os.Args)-1]))
	default:
		syscall.Exit(2)
	}
}

func exitCode(err error) int {
	if err != nil {
		return 1
	}
	return 0
}

// batches is a server that answers a call with a list of messages.
func batches() error {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		answer(parse(lines.Bytes()))
	}
	return nil
}

// deaf is a server that does not read any more once it has listed its tools.
func deaf() error {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		m := parse(lines.Bytes())
		if answer(m); m.Method == "tools/list" {
			time.Sleep(time.Hour) // until it is killed
		}
	}
	return nil
}

// busy is a server that answers its calls one after the other. It prints what it does. It is busy with the first call
// from when it opens the pipe that waitsFile names until the other side closes it.
func busy() error {
	pipe := os.Getenv(waitsFile)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Buffer(nil, 1<<20); lines.Scan(); {
		if m := parse(lines.Bytes()); m.Method != "tools/call" {
			answer(m)
		} else {
			fmt.Print("working\n[INFO] working\n{\"level\":\"info\"}\n")
			if pipe != "" {
				if _, err := os.ReadFile(pipe); err != nil {
					return err
				}
				pipe = ""
			}
			fmt.Printf(fine+"\n", m.ID)
		}
	}
	return lines.Err()
}

// answer answers one message on the standard output, a call with a list of messages.
func answer(m message) {
	switch {
	case m.Method == "initialize":
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},`+
			`"serverInfo":{"name":"evil","version":"1"}}}`+"\n", m.ID)
	case m.Method == "tools/list":
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[`+oneTool+`]}}`+"\n", m.ID)
	case m.Method == "tools/call":
		fmt.Printf(`[{"jsonrpc":"2.0","id":"q","method":"ping"},`+fine+`]`+"\n", m.ID)
	case len(m.ID) > 0:
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`+"\n", m.ID)
	}
}

// stubborn is a server that ignores every signal it may, says nothing, and has a child that does the same.
func stubborn() int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	child := exec.Command("/bin/sh", "-c", "trap '' TERM INT HUP; while :; do sleep 1000; done")
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		return 1
	}
	_ = os.WriteFile(os.Getenv("TEST_PIDS"), fmt.Appendf(nil, "%d %d", os.Getpid(), child.Process.Pid), 0o600)
	select {}
}

type text struct {
	Text string `json:"text"`
}

// newServer returns a server as others write them.
func newServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "echo", Description: "Says what it is told."},
		func(ctx context.Context, req *mcp.CallToolRequest, in text) (*mcp.CallToolResult, any, error) {
			if token := req.Params.GetProgressToken(); token != nil {
				_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
					ProgressToken: token, Message: "half", Progress: 1, Total: 2,
				})
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text}}}, nil, nil
		})
	mcp.AddTool(s, &mcp.Tool{Name: "work"},
		func(ctx context.Context, req *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: req.Params.GetProgressToken(), Message: "half", Progress: 1, Total: 2,
			})
			return &mcp.CallToolResult{}, nil, nil
		})
	mcp.AddTool(s, &mcp.Tool{Name: "env"},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			list := strings.Join(os.Environ(), "\n")
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: list}}}, nil, nil
		})
	mcp.AddTool(s, &mcp.Tool{Name: "fail"},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return nil, nil, errors.New("no such thing")
		})
	mcp.AddTool(s, &mcp.Tool{Name: "show.all", OutputSchema: map[string]any{"type": "object"}},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{
				Content: []mcp.Content{
					&mcp.TextContent{Text: "seen"}, &mcp.ImageContent{MIMEType: "image/png", Data: []byte("png")},
					&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{
						URI: "file:///a/b.txt", MIMEType: "text/plain; charset=utf-8", Text: "words",
					}},
					&mcp.ResourceLink{Name: "far", URI: "https://example.com/x"},
				},
				StructuredContent: map[string]any{"n": 7},
			}, nil, nil
		})
	mcp.AddTool(s, &mcp.Tool{Name: "wait"},
		func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			if file := os.Getenv(waitsFile); file != "" {
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					return nil, nil, err
				}
			}
			<-ctx.Done()
			return nil, nil, ctx.Err()
		})
	return s
}

// waitsFile is the variable that names the file which the tool wait makes when it has begun, and the pipe of busy.
const waitsFile = "TEST_WAITS"

// open opens the servers of a test.
func open(t *testing.T, change func(*upstream.Config), servers ...upstream.Server) *upstream.Servers {
	t.Helper()
	rules, err := policy.New(policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := upstream.Config{
		Servers: servers, Version: "test", Backoff: 10 * time.Millisecond,
		Admission: agent.NewAdmission(rules, schema.NewValidator(), agent.AdmissionLimits{}, "time"),
	}
	if change != nil {
		change(&cfg)
	}
	s := upstream.New(cfg)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Limit)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return s
}

// withHost lets servers run programs.
func withHost(t *testing.T) func(*upstream.Config) {
	t.Helper()
	engine, err := host.New(host.Config{Program: self})
	if err != nil {
		t.Skipf("programs cannot run here: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Limit)
		defer cancel()
		if err := engine.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return func(c *upstream.Config) { c.Host = engine }
}

// stdio is this program as a server.
func stdio(t *testing.T, mode string, env ...string) upstream.Server {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return upstream.Server{
		Name: "prog", Command: []string{self}, Env: append(env, testMode+"="+mode), Connect: 20 * time.Second,
	}
}

// until waits for a set of tools that is as it should be, and returns it by name.
func until(t *testing.T, s *upstream.Servers, good func(map[string]agent.Tool) bool) map[string]agent.Tool {
	t.Helper()
	deadline := time.After(testkit.Limit)
	for {
		set := s.Live()
		tools := make(map[string]agent.Tool)
		for _, tool := range set.Tools {
			tools[tool.Spec().Name] = tool
		}
		if good(tools) {
			return tools
		}
		select {
		case <-set.Changed:
		case <-deadline:
			t.Fatalf("the tools are %v; %+v", tools, s.Status())
		}
	}
}

// has returns a condition for until: a tool is there, and works.
func has(name string) func(map[string]agent.Tool) bool {
	return func(tools map[string]agent.Tool) bool { return tools[name] != nil && why(tools[name]) == "" }
}

// why returns why a tool cannot work.
func why(t agent.Tool) string { return t.(agent.UnavailableTool).Unavailable() }

// call calls a tool with a deadline.
func call(t *testing.T, tool agent.Tool, args string) (registry.Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return tool.Execute(ctx, json.RawMessage(args))
}

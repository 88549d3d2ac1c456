package python_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/ws/client"
)

// TestContract uses every method of both clients against a pod with two devices, a model and an approver.
func TestContract(t *testing.T) {
	t.Parallel()
	model := scripted.OpenAIFunc(t, func(r scripted.Request) scripted.Step {
		last := r.Messages[len(r.Messages)-1]
		switch {
		case last.Role == provider.RoleTool:
			return scripted.Reply(scripted.Text("It said ", "hello."))
		case strings.Contains(last.Content, "hold"):
			return scripted.Reply(scripted.Text("I wait."), scripted.Hold(nil))
		case strings.Contains(last.Content, "fail"):
			return scripted.Reply(scripted.Text("I fail."), scripted.Fault("server_error", "broken"))
		default:
			return scripted.Reply(scripted.Calls(scripted.Call{Name: "echo", Args: `{"text":"hello"}`}))
		}
	})
	pods := startPods(t, 1, "FARHAND_MODEL=scripted", "FARHAND_MODEL_URL="+model.URL,
		"FARHAND_BLOB_URL=file://"+t.TempDir())
	url := "http://" + pods[0].addr
	startDevice(t, url, "phone", client.WithLabels(map[string]string{"room": "kitchen"}),
		echoTool, countTool, snapTool,
		tool("fail", "Fail.", `{"type":"object"}`, func(context.Context, client.Call) (any, error) {
			return nil, errors.New("out of paper")
		}),
		tool("measure", "Measure.", `{"type":"object"}`, func(context.Context, client.Call) (any, error) {
			return map[string]any{"celsius": 21.5}, nil
		}),
		client.WithTool(client.Tool{Name: "door", Description: "Open the door.", SecurityLevel: "user_confirm"},
			func(context.Context, client.Call) (any, error) { return "open", nil }))
	startDevice(t, url, "tablet", echoTool)
	python(t, clientEnv(url), "testdata/contract.py", createKey(t, url)).end(t)
}

var (
	echoTool = tool("echo", "Return a text.",
		`{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`,
		func(_ context.Context, call client.Call) (any, error) {
			var args struct{ Text string }
			err := call.Bind(&args)
			return args.Text, err
		})
	countTool = tool("count", "Count.", `{"type":"object","properties":{"to":{"type":"integer"}}}`,
		func(_ context.Context, call client.Call) (any, error) {
			var args struct{ To int }
			if err := call.Bind(&args); err != nil {
				return nil, err
			}
			var said strings.Builder
			for i := 1; i <= args.To; i++ {
				text := fmt.Sprintf("%d ", i)
				said.WriteString(text)
				call.Progress(float64(i), float64(args.To), fmt.Sprintf("%d of %d", i, args.To))
				call.Chunk(text)
			}
			return said.String(), nil
		})
	snapTool = tool("snap", "Take a picture.", `{"type":"object","properties":{"bytes":{"type":"integer"}}}`,
		func(ctx context.Context, call client.Call) (any, error) {
			args := struct{ Bytes int }{8}
			if err := call.Bind(&args); err != nil {
				return nil, err
			}
			picture := append([]byte("\x89PNG"), bytes.Repeat([]byte("x"), args.Bytes-4)...)
			part := client.Part{Type: client.PartImage, MIMEType: "image/png", Name: "snap.png"}
			if len(picture) <= 1<<19 {
				part.Data = picture
				return client.Result{Output: "A picture.", Parts: []client.Part{part}}, nil
			}
			part, err := call.Upload(ctx, part, int64(len(picture)), bytes.NewReader(picture))
			return client.Result{Output: "A picture.", Parts: []client.Part{part}}, err
		})
)

// createKey returns a key with the role caller.
func createKey(t *testing.T, url string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/api/keys",
		strings.NewReader(`{"name":"caller","roles":["caller"]}`))
	must(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	must(t, err)
	defer resp.Body.Close()
	var created struct{ Key string }
	must(t, json.NewDecoder(resp.Body).Decode(&created))
	if created.Key == "" {
		t.Fatalf("no key: %s", resp.Status)
	}
	return created.Key
}

// TestCore runs the unit tests of the rules, which do no I/O.
func TestCore(t *testing.T) {
	t.Parallel()
	python(t, nil, "tests/test_core.py").end(t)
}

// TestDocument runs each program of CLIENT.md, in an empty folder with the packed client.
func TestDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("CLIENT.md")
	must(t, err)
	pods := startPods(t, 1)
	url := "http://" + pods[0].addr
	startDevice(t, url, "phone", echoTool, countTool, snapTool)
	programs := regexp.MustCompile("(?s)```python\n(.*?)```").FindAllSubmatch(text, -1)
	wants := []string{"hello", "3 of 3", "1 of 2", "wrote 8 bytes", "ToolNotFoundError no"}
	if len(programs) != len(wants) {
		t.Fatalf("CLIENT.md has %d programs, want %d", len(programs), len(wants))
	}
	for i, want := range wants {
		path := filepath.Join(t.TempDir(), "program.py")
		must(t, os.WriteFile(path, programs[i][1], 0o600))
		if lines := python(t, clientEnv(url), path).end(t); len(lines) == 0 || lines[len(lines)-1] != want {
			t.Errorf("program %d printed %q, want %q last", i+1, lines, want)
		}
	}
}

// TestStyle checks types and format as a user's and a developer's tools do.
func TestStyle(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"-m", "ruff", "format", "--no-cache", "--check", "-q", "."}, {"-m", "ruff", "check", "--no-cache", "-q", "."},
		{"-m", "mypy", "--cache-dir", t.TempDir(), "src/farhand", "testdata/typed.py"},
	} {
		if out, err := pythonTool(args...); err != nil {
			t.Errorf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

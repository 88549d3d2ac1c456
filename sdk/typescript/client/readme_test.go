package client_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/ws/client"
)

// TestReadme runs the programs of README.md with the package as npm installs it, against a pod.
func TestReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	must(t, err)
	blocks := regexp.MustCompile("(?s)```js\n(.*?)```").FindAllSubmatch(text, -1)
	p := startPod(t, modelSettings(scripted.OpenAIFunc(t, func(r scripted.Request) scripted.Step {
		last := r.Messages[len(r.Messages)-1]
		switch {
		case last.Role == "tool":
			return scripted.Reply(scripted.Text("It is ", "a phone."))
		case last.Content == "Thanks":
			return scripted.Reply(scripted.Text("You are welcome."))
		default:
			return scripted.Reply(scripted.Calls(scripted.Call{Name: "ring", Args: "{}"}))
		}
	}))...)
	connect(t, p.url, "phone", phoneTools()...)
	// A caller cannot approve: only its calls need an approval.
	var key struct {
		Key string `json:"key"`
	}
	p.request(t, http.MethodPost, "/api/keys", map[string]any{"name": "readme", "roles": []string{"caller"}}, &key)
	env := []string{"FARHAND_TOKEN=" + key.Key, "APPROVER_TOKEN=" + token}
	for i, want := range [][]string{
		{"Click.", "image image/png 4"},
		{"started 0 3", "one undefined undefined", "two undefined undefined", "onetwo"},
		{"It rang.", "phone succeeded It rang.", "tablet rejected", "1 of 2"},
		{"session_not_found no No connected session"},
		{`unlock {`, "allowed The front door is open."},
		{"calls ring", "It is a phone.", "You are welcome.", "6 messages"},
		{"camera_snap phone", "phone true", "call.finished ring succeeded"},
	} {
		if i >= len(blocks) {
			t.Fatalf("README.md has %d programs", len(blocks))
		}
		code := strings.ReplaceAll(string(blocks[i][1]), "https://gateway.example.com", p.url)
		lines, ok := startNode(t, env, code).rest(t)
		for _, text := range want {
			if !ok || !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, text) }) {
				t.Errorf("program %d (succeeded: %t) does not print %q: %q", i, ok, text, lines)
			}
		}
	}
	if len(blocks) != 7 {
		t.Errorf("README.md has %d programs, and seven are expected", len(blocks))
	}
}

// modelSettings are those of a pod with a scripted model.
func modelSettings(s *scripted.Server) []string {
	return []string{"FARHAND_MODEL=scripted", "FARHAND_MODEL_URL=" + s.URL, "FARHAND_MODEL_KEY=none"}
}

// phoneTools are those that the README calls.
func phoneTools() []client.Option {
	return []client.Option{
		client.WithTool(client.Tool{Name: "camera_snap", Description: "Take a picture."},
			func(context.Context, client.Call) (any, error) {
				part := client.Part{Type: "image", MIMEType: "image/png", Data: []byte("\x89PNG")}
				return client.Result{Output: "Click.", Parts: []client.Part{part}}, nil
			}),
		client.WithTool(client.Tool{Name: "record", Description: "Record a sound."},
			func(ctx context.Context, call client.Call) (any, error) {
				call.Progress(0, 3, "started")
				for _, piece := range []string{"one", "two"} {
					call.Chunk(piece)
				}
				return "onetwo", nil
			}),
		client.WithTool(client.Tool{Name: "ring", Description: "Ring the bell."},
			func(context.Context, client.Call) (any, error) { return "It rang.", nil }),
		client.WithTool(client.Tool{Name: "unlock", Description: "Unlock a door.", SecurityLevel: "user_confirm"},
			func(_ context.Context, call client.Call) (any, error) {
				var args struct{ Door string }
				if err := json.Unmarshal(call.Args, &args); err != nil {
					return nil, err
				}
				return "The " + args.Door + " door is open.", nil
			}),
	}
}

package client_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/ws/client"
)

// TestSurface uses what the README only names, against a pod.
func TestSurface(t *testing.T) {
	t.Parallel()
	p := startPod(t, modelSettings(scripted.OpenAIFunc(t, func(r scripted.Request) scripted.Step {
		if r.Messages[len(r.Messages)-1].Content == "Hold" {
			return scripted.Reply(scripted.Text("I"), scripted.Hold(nil))
		}
		return scripted.Reply(scripted.Text("Hello to you."))
	}))...)
	measure := client.Tool{
		Name: "measure", Description: "Measure.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"to":{"type":"integer"}}}`),
	}
	tools := append(phoneTools(), client.WithLabels(map[string]string{"room": "kitchen"}),
		client.WithTool(measure, func(_ context.Context, call client.Call) (any, error) {
			return map[string]any{"measured": call.Args}, nil
		}),
		client.WithTool(client.Tool{Name: "wait", Description: "Wait."},
			func(ctx context.Context, call client.Call) (any, error) {
				call.Progress(1, 2, "waiting")
				<-ctx.Done()
				return nil, ctx.Err()
			}))
	connect(t, p.url, "phone", tools...)
	var key struct {
		Key string `json:"key"`
	}
	p.request(t, http.MethodPost, "/api/keys", map[string]any{"name": "caller", "roles": []string{"caller"}}, &key)
	text, err := os.ReadFile("testdata/surface.mjs")
	must(t, err)
	lines, ok := startNode(t, p.environment("CALLER_TOKEN="+key.Key), string(text)).rest(t)
	got := strings.Join(lines, "\n")
	const want = `labels: It rang. phone
lists: 1 1
session: 6
me: [ 'caller' ] 60000
structured: { to: 2 }
arguments: InvalidArgumentsError invalid_arguments no The arguments do not satisfy the parameters schema of "measure".
unknown: NotFoundError tool_not_found no No connected session in scope offers the tool "nothing". ` +
		`GET /api/tools lists the tools.
token: UnauthenticatedError unauthenticated no A valid bearer token is required.
decided: denied
denied: ApprovalDeniedError approval_denied no A person denied this call of "unlock". Do not retry it for the same ` +
		`purpose unless the person asks for it. The person's comment: not today Reason: The policy requires ` +
		`approval: asked directly (rule default:confirm-direct).
granted: The back door is open. The side door is open.
revoked: 0
same: true
cancelled: cancelled yes
calls: measure
answer: Hello to you.
again: Hello to you.
transcript: Hello to you. no_active_response
stopped: TimeoutError 23 undefined The operation was aborted due to timeout
request: phone`
	if !ok || got != want {
		t.Errorf("it succeeded: %t\n%s\nwant\n%s", ok, got, want)
	}
}

package api_test

import (
	"context"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
)

// failsAfter is a turn that fails after calls of a device's tools.
func failsAfter(failure *chat.Error, calls ...chat.CallReport) *scripted {
	a := fails(failure)
	complete := a.complete
	a.complete = func(ctx context.Context, c chat.Completion, emit func(chat.Event)) (chat.Reply, []provider.ToolCall,
		error) {
		reply, handed, err := complete(ctx, c, emit)
		reply.Calls = calls
		return reply, handed, err
	}
	return a
}

// Clients of OpenAI's API ask again by themselves, and a device would do everything twice.
func TestCompletionsThatMustNotBeRepeated(t *testing.T) {
	called := chat.CallReport{ID: "c1", Name: "pay", Status: chat.StatusCompleted}
	broken := &chat.Error{Code: chat.CodeProvider, Message: "m", Cause: &provider.Error{Kind: provider.KindFailure}}
	limited := &chat.Error{Code: chat.CodeProvider, Message: "m", Cause: &provider.Error{Kind: provider.KindLimit}}
	for _, tt := range []struct {
		name  string
		agent *scripted
		final bool
	}{
		{"the provider failed", failsAfter(broken), false},
		{"the provider failed after a call", failsAfter(broken, called), true},
		{"the provider's limit", failsAfter(limited), false},
		{"the provider's limit after a call", failsAfter(limited, called), true},
		{"the store is away", failsAfter(&chat.Error{Code: chat.CodeAgent, Message: "m", Cause: errAway}), false},
		{"the store is away after a call", failsAfter(&chat.Error{Code: chat.CodeAgent, Message: "m", Cause: errAway},
			called), true},
		{"a limit of the turn", failsAfter(&chat.Error{Code: chat.CodeAgent, Message: "m"}), true},
	} {
		f := talking(t, tt.agent)
		for _, body := range []string{hello, strings.TrimSuffix(hello, "}") + `,"stream":true}`} {
			r := f.post(completionsPath, body)
			if got := r.header.Get("X-Should-Retry"); r.status < 400 || (got == "false") != tt.final || got != "" &&
				got != "false" {
				t.Errorf("%s: status %d, X-Should-Retry %q", tt.name, r.status, got)
			}
		}
	}
	f := talking(t, answering())
	for _, id := range []string{"a1", "a2"} {
		named := session(id)
		named.UserID = "anna"
		f.connect(0, named, echo)
	}
	r := f.post(completionsPath, strings.TrimSuffix(hello, "}")+`,"user":"anna"}`)
	if r.status != http.StatusConflict || r.header.Get("X-Should-Retry") != "false" {
		t.Errorf("several sessions: status %d, %v", r.status, r.header)
	}
}

// The official client does what it is told.
func TestOfficialClientDoesNotRepeatATurn(t *testing.T) {
	a := failsAfter(&chat.Error{Code: chat.CodeProvider, Message: "gone"}, chat.CallReport{ID: "c1", Name: "pay"})
	f := talking(t, a)
	// The client is a module of its own, so that the product does not depend on it.
	client := exec.CommandContext(t.Context(), "go", "run", ".", f.pods[0].server.URL+"/v1", token)
	client.Dir = "testdata/openai"
	var building strings.Builder
	client.Stderr = &building
	said, err := client.Output()
	if err != nil || !strings.HasPrefix(string(said), "failed: ") || len(a.completed) != 1 {
		t.Errorf("asked %d times: %v: %s%s", len(a.completed), err, said, &building)
	}
}

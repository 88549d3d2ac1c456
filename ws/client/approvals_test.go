package client_test

import (
	"context"
	"strings"
	"testing"

	"github.com/farhand/farhand/ws/client"
)

func (p *peer) ask(id string, expiresMS int) {
	p.t.Helper()
	p.send(map[string]any{"type": "approval_request", "id": id, "call_id": "c-" + id, "tool": "snap", "reason": "Why.",
		"args": map[string]any{"n": 1}, "args_text": "{\n  \"n\": 1\n}", "remarks": []string{"long"},
		"expires_ms": expiresMS})
}

func TestApprover(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	asked := make(chan client.Question, 8)
	answers := map[string]client.Decision{"1": client.AllowOnce, "2": "perhaps", "3": "", "5": client.Deny}
	_, _, _ = start(t, f.http.URL, client.WithTool(client.Tool{Name: "snap"}, nil),
		client.WithApprover(func(_ context.Context, q client.Question) client.Decision {
			asked <- q
			if q.ID == "4" {
				panic("oh")
			}
			return answers[q.ID]
		}))
	p := f.accept()
	if can := p.opening["capabilities"].([]any); can[len(can)-1] != "approval" {
		t.Errorf("capabilities %v", can)
	}
	p.ask("1", 60_000)
	q := wait(t, asked)
	if q.ID != "1" || q.Tool != "snap" || string(q.Args) != `{"n":1}` || q.Text != "{\n  \"n\": 1\n}" ||
		q.Reason != "Why." || len(q.Remarks) != 1 || q.Remarks[0] != "long" {
		t.Errorf("asked %+v", q)
	}
	if got := p.expect("approval_response"); got["id"] != "1" || got["decision"] != "allow-once" {
		t.Errorf("answered %v", got)
	}
	for _, id := range []string{"2", "3", "4", "", "5"} { // all but the last decide nothing
		p.ask(id, 60_000)
	}
	if got := p.expect("approval_response"); got["id"] != "5" || got["decision"] != "deny" {
		t.Errorf("answered %v", got)
	}
}

// The approver is told when its answer is of no more use, and is not asked twice at a time.
func TestQuestionsEnd(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	asked, ended := make(chan string, 8), make(chan error, 8)
	_, _, cancel := start(t, f.http.URL, client.WithTool(client.Tool{Name: "snap"}, nil),
		client.WithApprover(func(ctx context.Context, q client.Question) client.Decision {
			asked <- q.ID
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return client.AllowOnce
		}))
	p := f.accept()
	p.ask("1", 60_000)
	p.ask("1", 60_000)
	p.send(map[string]any{"type": "approval_decided", "id": "1", "state": "denied"})
	if why := wait(t, ended); !strings.Contains(why.Error(), "denied") {
		t.Errorf("ended with %v", why)
	}
	p.ask("2", 1) // no time at all
	if why := wait(t, ended); why != context.DeadlineExceeded {
		t.Errorf("ended with %v", why)
	}
	p.ask("3", 60_000)
	for _, want := range []string{"1", "2", "3"} {
		if got := wait(t, asked); got != want {
			t.Errorf("asked %s, want %s", got, want)
		}
	}
	cancel()
	if why := wait(t, ended); why != context.Canceled {
		t.Errorf("ended with %v", why)
	}
}

// Who has nobody to ask does not say so, and ignores what it is asked.
func TestWithoutApprover(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	_, _, _ = start(t, f.http.URL, client.WithTool(client.Tool{Name: "snap"},
		func(context.Context, client.Call) (any, error) { return "done", nil }))
	p := f.accept()
	for _, can := range p.opening["capabilities"].([]any) {
		if can == "approval" {
			t.Error("it says that it has somebody to ask")
		}
	}
	p.ask("1", 60_000)
	p.call("c", "snap", 10_000)
	p.expect("tool_result")
}

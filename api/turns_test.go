package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

func TestTurnError(t *testing.T) {
	stopped := &chat.Error{Code: chat.CodeAgent, Message: "stopped"}
	gone, disconnect := context.WithCancel(t.Context())
	disconnect()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	drained, drain := context.WithCancelCause(t.Context())
	drain(registry.ErrDraining)
	for code, ctx := range map[registry.Code]context.Context{
		registry.CodeCancelled: gone, registry.CodeTimeout: late, registry.CodeDraining: drained,
		registry.CodeAgent: t.Context(),
	} {
		if err := turnError(ctx, stopped, false); !errors.Is(err, code) {
			t.Errorf("%s: %v", code, err)
		}
	}
}

// idle is an agent whose turns end at once. It notes how long they could have taken.
type idle struct {
	chat.Agent
	left time.Duration
}

func (*idle) Models() []string                                         { return []string{"m"} }
func (*idle) CountMessages(context.Context, registry.Key) (int, error) { return 1, nil }
func (i *idle) Ask(ctx context.Context, _ chat.Ask, _ func(chat.Event)) (chat.Reply, error) {
	deadline, _ := ctx.Deadline()
	i.left = time.Until(deadline)
	return chat.Reply{}, nil
}

// The answer to a message may take as long as a turn, and that one may have to wait for the turn before it. Then its
// client has to receive it.
func TestTurnWriteDeadline(t *testing.T) {
	policy, err := agent.NewPolicy(agent.PolicyRules{})
	if err != nil {
		t.Fatal(err)
	}
	talker := &idle{}
	store := memory.New(memory.Options{})
	h := &handler{Config: Config{
		Agent: talker, Directory: store, Conversations: store, Policy: policy, Auth: auth.Anonymous{},
		Limits:  Limits{MaxBody: 1 << 10},
		MaxTurn: 3 * time.Minute, TurnWait: 40 * time.Second, Draining: t.Context(), Closing: t.Context(),
		Origins: &auth.Origins{},
		Log:     slog.New(slog.DiscardHandler),
	}}
	h.access = newAccessLog(AccessLogOff, h.Log)
	h.served = newSlots("requests", 1, 1)
	engine := newEngine(h)
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	engine.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/sessions/s1/messages",
		strings.NewReader(`{"content":"hi"}`)))
	if got, want := time.Until(w.set[len(w.set)-1]), 3*time.Minute+40*time.Second+writeMargin; w.Code != 200 ||
		got > want ||
		got < want-5*time.Second {
		t.Errorf("status %d, %v left for writing, want %v", w.Code, got, want)
	}
	if got, want := talker.left, 3*time.Minute+40*time.Second+turnGrace; got > want || got < want-5*time.Second {
		t.Errorf("%v left for the turn, want %v", got, want)
	}
}

package chat

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
)

// TestRedisStallsWhenTheAnswerEnds stops all writes longer than one attempt lasts, just when the answer is to be
// stored.
func TestRedisStallsWhenTheAnswerEnds(t *testing.T) {
	server := redistest.Start(t)
	conn, err := redisstore.Dial(t.Context(), redisstore.Options{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	model := &script{steps: []step{func(_ context.Context, _ provider.Request,
		emit func(provider.Delta)) (provider.Answer, error) {
		emit(provider.Delta{Text: "It is done."})
		if out, err := server.Command("client", "pause", "2000", "write"); err != nil || out != "OK" {
			t.Error(out, err)
		}
		return provider.Answer{Message: provider.Message{Role: provider.RoleAssistant, Content: "It is done."}}, nil
	}}}
	store := conn.Store()
	engine, err := NewEngine(Config{Models: []provider.Model{model}, Store: store})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, turnErr := engine.Ask(ctx, Ask{Key: key, Content: "go"}, nil)
	tr, err := engine.Transcript(ctx, key)
	if turnErr != nil || err != nil {
		t.Fatal(turnErr, err)
	}
	var lines []string
	for _, m := range tr.Messages {
		lines = append(lines, line(m))
	}
	if want := []string{"user:go", "assistant:It is done."}; !slices.Equal(lines, want) {
		t.Errorf("the transcript is %q", lines)
	}
	if err := engine.Close(ctx); err != nil {
		t.Error(err)
	}
}

// TestWhatCannotBeStoredStaysInTheDraft has the store take nothing but drafts from the time the model speaks.
func TestWhatCannotBeStoredStaysInTheDraft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, func(_ context.Context, _ provider.Request,
			emit func(provider.Delta)) (provider.Answer, error) {
			emit(provider.Delta{Text: "A long answer"})
			time.Sleep(2 * draftEvery)
			return provider.Answer{Message: provider.Message{Role: provider.RoleAssistant, Content: "A long answer"}},
				nil
		}, text("ok"))
		appends := 0
		r.store.setFault(func(_ context.Context, op string) error {
			if op == "append" { // by one goroutine
				if appends++; appends > 1 {
					return registry.StoreUnavailable(op, errors.New("away"))
				}
			}
			return nil
		})
		_, ev, err := r.ask(t.Context(), "go")
		wantCode(t, err, ev, CodeAgent)
		if appends < 5 {
			t.Errorf("%d attempts", appends)
		}
		r.store.setFault(nil)
		tr, err := r.engine.Transcript(t.Context(), key)
		if err != nil || tr.Busy || len(tr.Messages) != 2 ||
			line(tr.Messages[1]) != "assistant:A long answer interrupted" {
			t.Errorf("%+v, %v", tr, err)
		}
		r.must("go on")
		r.wantHistory("user:go", "assistant:A long answer interrupted", "user:go on", "assistant:ok")
		r.free()
	})
}

// A model that writes much at once, and then a character at a time, does not have the whole answer saved for each.
func TestDraftsOfLongAnswersAreSavedSeldom(t *testing.T) {
	const length, seconds = 2 << 20, 60
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, func(_ context.Context, _ provider.Request,
			emit func(provider.Delta)) (provider.Answer, error) {
			said := strings.Repeat("x", length)
			emit(provider.Delta{Text: said})
			for range 10 * seconds {
				time.Sleep(time.Second / 10)
				emit(provider.Delta{Text: "y"})
				said += "y"
			}
			return provider.Answer{Message: provider.Message{Role: provider.RoleAssistant, Content: said}}, nil
		})
		r.must("go")
		if most := seconds*draftRate/length + 2; r.store.saves > most || r.store.saves == 0 {
			t.Errorf("the draft of %d bytes was saved %d times, want at most %d", length, r.store.saves, most)
		}
		r.free()
	})
}

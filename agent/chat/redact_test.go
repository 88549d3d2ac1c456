package chat

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/provider"
)

// betray is an answer of a model that was made to say its nonce wherever it can, in pieces of so many bytes.
func betray(size int, calls ...string) step {
	return func(_ context.Context, r provider.Request, emit func(provider.Delta)) (provider.Answer, error) {
		nonce := nonceIn.FindStringSubmatch(r.System)[1]
		said := fmt.Sprintf("q%s%s, and %s: qé", nonce, nonce, strings.ToUpper(nonce))
		for _, piece := range pieces(said, size) {
			emit(provider.Delta{Thinking: piece})
		}
		for _, piece := range pieces(said, size) {
			emit(provider.Delta{Text: piece})
		}
		a := provider.Answer{Stop: provider.StopEnd, Message: provider.Message{
			Role: provider.RoleAssistant, Content: said,
			Thinking: []provider.Thought{{Text: said, Signature: "signed"}},
		}}
		for _, name := range calls {
			a.Message.ToolCalls = append(a.Message.ToolCalls, tool(name, name, fmt.Sprintf(`{"note":%q}`, said)),
				tool(name+"2", name+nonce, "{}"))
			a.Stop = provider.StopToolCalls
		}
		return a, nil
	}
}

func pieces(text string, size int) []string {
	var all []string
	for ; len(text) > size; text = text[size:] {
		all = append(all, text[:size])
	}
	return append(all, text)
}

// A model can be made to say the nonce. It leaves the gateway nowhere: not in pieces, not in the whole answer, not in
// the arguments of calls, not in what is read of the conversation later. The model gets its thoughts back as it signed
// them.
func TestTheNonceIsTakenOutOfTheModelsWords(t *testing.T) {
	const want = "q……, and …: qé"
	for size := range 45 {
		bubble(t, func(t *testing.T) {
			r := newRig(t, Limits{}, betray(size+1, "look"), betray(size+1))
			r.tools.set("look", returns("fine"))
			ev := &events{}
			reply, err := r.engine.Ask(t.Context(), Ask{Key: key, Content: "go", Debug: true}, ev.emit)
			if err != nil || reply.FullResponse != want+want {
				t.Fatalf("said %q, %v", reply.FullResponse, err)
			}
			sent := r.model.asked()
			nonce := nonceIn.FindStringSubmatch(sent[0].System)[1]
			transcript, err := r.engine.Transcript(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			leaves := []any{ev.all, reply, transcript, r.history()}
			for _, c := range r.tools.called() {
				leaves = append(leaves, c.ModelName, c.Args)
			}
			shown, err := json.Marshal(leaves)
			if err != nil {
				t.Fatal(err)
			}
			if all := strings.ToLower(string(shown)); strings.Contains(all, nonce) {
				t.Errorf("in pieces of %d the nonce %s went out: %s", size+1, nonce, all)
			}
			for what, kind := range map[string]EventType{"text": EventChunk, "thoughts": EventThinking} {
				streamed := ""
				for _, e := range ev.of(kind) {
					streamed += e.Content
				}
				if streamed != want+want {
					t.Errorf("streamed %s in pieces of %d: %q", what, size+1, streamed)
				}
			}
			if thought := sent[1].Messages[1].Thinking[0]; strings.Count(thought.Text, nonce) != 2 {
				t.Errorf("the model gets another thought back than it signed: %q", thought.Text)
			}
		})
	}
}

// A completion has a nonce of its own, which its caller is not told either, also not in calls of the caller's tools.
func TestACompletionDoesNotTellItsNonce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, betray(7, "mine"))
		r.tools.set("look", returns("fine"))
		ev := &events{}
		reply, calls, err := r.engine.Complete(t.Context(), Completion{
			Key: key, Messages: []provider.Message{{Role: provider.RoleUser, Content: "go"}},
			Tools: []provider.Tool{{Name: "mine", Parameters: json.RawMessage(`{"type":"object"}`)}},
		}, ev.emit)
		if err != nil || len(calls) == 0 {
			t.Fatalf("%d calls, %v", len(calls), err)
		}
		nonce := nonceIn.FindStringSubmatch(r.model.asked()[0].System)[1]
		shown, err := json.Marshal([]any{ev.all, reply, calls})
		if err != nil || strings.Contains(strings.ToLower(string(shown)), nonce) {
			t.Errorf("the nonce %s went out: %s, %v", nonce, shown, err)
		}
	})
}

// What was said before an answer broke off is redacted as well, and nothing of it is missing.
func TestAnAnswerThatBreaksOffDoesNotTellTheNonce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		broken := func(ctx context.Context, r provider.Request, emit func(provider.Delta)) (provider.Answer, error) {
			a, _ := betray(3)(ctx, r, emit)
			return a, &provider.Error{Kind: provider.KindBroken, Message: "broke off"}
		}
		r := newRig(t, Limits{}, use(tool("c", "look", "{}")), broken)
		r.tools.set("look", returns("fine"))
		if _, _, err := r.ask(t.Context(), "go"); err == nil {
			t.Fatal("no error")
		}
		history := r.history()
		if last := history[len(history)-1]; last != "assistant:q……, and …: qé interrupted" {
			t.Errorf("kept %q", last)
		}
	})
}

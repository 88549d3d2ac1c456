package chat

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/provider"
)

// With tool_choice none nothing is offered, and nothing runs: not the gateway's tools, not the device's, not the
// caller's.
func TestChoiceNoneOffersAndRunsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, use(tool("a", "look", "{}"), tool("b", "mine", "{}")), text("Fine."))
		r.tools.set("look", returns("x"))
		r.engine.cfg.OpenTools = func(agent.SessionContext) Tools { t.Error("tools were opened"); return r.tools }
		reply, calls, _, err := r.complete(Completion{
			Key: key, Messages: []provider.Message{user("hi")}, Tools: mine,
			Choice: provider.Choice{Mode: provider.ChoiceNone},
		})
		if err != nil || len(calls) != 0 || len(r.tools.called()) != 0 || reply.FullResponse != "Fine." {
			t.Errorf("%+v, %v, %v", reply, calls, err)
		}
		for _, asked := range r.model.asked() {
			if len(asked.Tools) != 0 {
				t.Errorf("offered %v", asked.Tools)
			}
		}
	})
}

// An order to call a tool is given until it has been carried out, so that a turn ends.
func TestOrdersToCallTools(t *testing.T) {
	required := provider.Choice{Mode: provider.ChoiceRequired}
	named := func(name string) provider.Choice { return provider.Choice{Mode: provider.ChoiceTool, Name: name} }
	for name, tt := range map[string]struct {
		choice provider.Choice
		tools  []provider.Tool
		steps  []step
		want   []provider.ChoiceMode // of each request
	}{
		"some tool of the device": {required, nil, []step{use(tool("a", "look", "{}")), text("Fine.")},
			[]provider.ChoiceMode{provider.ChoiceRequired, provider.ChoiceAuto}},
		"the device's tool": {named("look"), nil, []step{use(tool("a", "look", "{}")), text("Fine.")},
			[]provider.ChoiceMode{provider.ChoiceTool, provider.ChoiceAuto}},
		"some tool, the caller's at last": {required, mine,
			[]step{use(tool("a", "look", "{}")), use(tool("b", "mine", "{}"))},
			[]provider.ChoiceMode{provider.ChoiceRequired, provider.ChoiceRequired}},
		"the caller's tool": {named("mine"), mine, []step{use(tool("b", "mine", "{}"))},
			[]provider.ChoiceMode{provider.ChoiceTool}},
	} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, Limits{}, tt.steps...)
			r.tools.set("look", returns("x"))
			_, calls, _, err := r.complete(Completion{Key: key, Messages: []provider.Message{user("hi")},
				Tools: tt.tools, Choice: tt.choice})
			if err != nil || (len(calls) == 1) != (tt.tools != nil) {
				t.Errorf("%s: %v, %v", name, calls, err)
			}
			var got []provider.ChoiceMode
			for _, asked := range r.model.asked() {
				got = append(got, asked.Choice.Mode)
			}
			if len(got) != len(tt.want) || got[0] != tt.want[0] || got[len(got)-1] != tt.want[len(got)-1] {
				t.Errorf("%s: asked %q, want %q", name, got, tt.want)
			}
		})
	}
	for name, choice := range map[string]provider.Choice{"none at all": required, "no such tool": named("look")} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, Limits{})
			_, _, ev, err := r.complete(Completion{Messages: []provider.Message{user("hi")}, Choice: choice})
			var failed *provider.Error
			if wantCode(t, err, ev, CodeProvider); !errors.As(err, &failed) || failed.Param != "tool_choice" ||
				failed.Kind != provider.KindRequest {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// An answer that must be JSON is one text, whatever the model says beside calls of the device's tools.
func TestAnswersInJSONAreOneText(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, say([]string{"Let me ", "look."}, tool("a", "look", "{}")),
			say([]string{`{"a":`, `1}`}))
		r.tools.set("look", returns("x"))
		format := &provider.Format{Name: "a"}
		reply, _, ev, err := r.complete(Completion{
			Key: key, Messages: []provider.Message{user("hi")}, Options: provider.Options{Format: format},
		})
		if err != nil || reply.FullResponse != `{"a":1}` {
			t.Errorf("%+v, %v", reply, err)
		}
		if chunks := ev.of(EventChunk); len(chunks) != 1 || chunks[0].Content != `{"a":1}` {
			t.Errorf("streamed %+v", chunks)
		}
		if r.model.asked()[1].Options.Format != format || r.model.asked()[1].Messages[1].Content != "Let me look." {
			t.Error("the model is not asked for JSON, or does not read what it said")
		}
	})
}

// A refusal without a word is no empty answer.
func TestRefusals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		refuse := func(deltas ...provider.Delta) step {
			return func(_ context.Context, _ provider.Request, emit func(provider.Delta)) (provider.Answer, error) {
				m := provider.Message{}
				for _, d := range deltas {
					emit(d)
					m.Content += d.Text + d.Refusal
				}
				return provider.Answer{Message: m, Stop: provider.StopRefusal}, nil
			}
		}
		r := newRig(t, Limits{}, refuse(), refuse(provider.Delta{Text: "Well. "},
			provider.Delta{Refusal: "I must not."}), refuse())
		reply, _, ev, err := r.complete(Completion{Messages: []provider.Message{user("hi")}})
		if err != nil || reply.Refusal != noteRefused || reply.FullResponse != noteRefused || reply.Refused() ||
			!ev.of(EventChunk)[0].Refusal {
			t.Errorf("%+v, %v", reply, err)
		}
		reply, _, ev, err = r.complete(Completion{Messages: []provider.Message{user("hi")}})
		if err != nil || reply.Refusal != "I must not." || reply.FullResponse != "Well. I must not." ||
			!reply.Refused() || len(ev.of(EventChunk)) != 2 {
			t.Errorf("%+v, %v", reply, err)
		}
		reply, _ = r.must("and in a conversation?")
		if reply.FullResponse != noteRefused || reply.Stop != provider.StopRefusal ||
			!strings.Contains(strings.Join(r.history(), "\n"), noteRefused) {
			t.Errorf("%+v, kept %+v", reply, r.history())
		}
	})
}

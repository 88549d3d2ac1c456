package chat

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

func TestPlainText(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, say([]string{"Hel", "lo."}))
		reply, ev := r.must("Hi there")
		wantTypes(t, ev, EventChunk, EventChunk, EventTitle, EventChunkReset, EventDone)
		if done := ev.of(EventDone)[0]; done.FullResponse != "Hello." || reply.FullResponse != "Hello." {
			t.Errorf("done %q, reply %q", done.FullResponse, reply.FullResponse)
		}
		if reply.MessageCount != 2 || reply.Title != "Hi there" || reply.Stop != provider.StopEnd ||
			reply.Usage.Input != 10 {
			t.Errorf("reply %+v", reply)
		}
		r.wantHistory("user:Hi there", "assistant:Hello.")
		r.free()
		if got := r.model.asked()[0].System; got != "Be kind." {
			t.Errorf("system prompt %q", got)
		}
	})
}

func TestThinkingIsStreamedAndSentBackAsItWas(t *testing.T) {
	bubble(t, func(t *testing.T) {
		thought := provider.Thought{Text: "hmm", Signature: "sig"}
		think := func(_ context.Context, _ provider.Request, emit func(provider.Delta)) (provider.Answer, error) {
			emit(provider.Delta{Thinking: "hmm"})
			emit(provider.Delta{Text: "4"})
			return provider.Answer{Message: provider.Message{Content: "4", Thinking: []provider.Thought{thought}},
				Stop: provider.StopEnd}, nil
		}
		r := newRig(t, Limits{}, think, text("5"))
		_, ev := r.must("2+2?")
		wantTypes(t, ev, EventThinking, EventChunk, EventTitle, EventChunkReset, EventDone)
		r.must("2+3?")
		if got := r.model.asked()[1].Messages[1].Thinking; !slices.Equal(got, []provider.Thought{thought}) {
			t.Errorf("thinking %+v", got)
		}
	})
}

func TestModelThatDoesNotStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, func(context.Context, provider.Request, func(provider.Delta)) (provider.Answer,
			error) {
			return provider.Answer{Message: provider.Message{Content: "all at once"}, Stop: provider.StopEnd}, nil
		})
		reply, ev := r.must("?")
		if reply.FullResponse != "all at once" || len(ev.of(EventChunk)) != 1 {
			t.Errorf("%q, events %v", reply.FullResponse, ev.types())
		}
	})
}

func TestSeveralIterationsAreJoinedAsStreamed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, say([]string{"I look. "}, tool("c1", "look", `{}`)),
			say([]string{"Again. "}, tool("c1", "look", `{}`)), text("Found."))
		r.tools.set("look", returns("nothing"))
		reply, ev := r.must("Find it")
		if want := "I look. Again. Found."; reply.FullResponse != want || ev.of(EventDone)[0].FullResponse != want {
			t.Errorf("full response %q", reply.FullResponse)
		}
		r.wantHistory("user:Find it", "assistant:I look.  [c1]", "tool:nothing (c1)", "assistant:Again.  [c1]",
			"tool:nothing (c1)", "assistant:Found.")
		if reply.Usage.Input != 30 || reply.Usage.Output != 15 || reply.MessageCount != 6 {
			t.Errorf("reply %+v", reply)
		}
	})
}

func TestEmptyContent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{})
		_, ev, err := r.ask(t.Context(), " \n\t")
		wantCode(t, err, ev, CodeEmptyContent)
		r.wantHistory()
	})
}

func TestKeyThatIsNone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{})
		ev := &events{}
		_, err := r.engine.Ask(t.Context(), Ask{Key: registry.Key{Tenant: "{x}"}, Content: "hi"}, ev.emit)
		wantCode(t, err, ev, CodeAgent)
	})
}

func TestRegenerate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, text("one"), use(tool("c", "look", "{}")), text("two"), text("three"))
		r.tools.set("look", returns("x"))
		r.must("first")
		r.must("second")
		ev := &events{}
		reply, err := r.engine.Ask(t.Context(), Ask{Key: key, Regenerate: true}, ev.emit)
		if err != nil || reply.FullResponse != "three" || reply.MessageCount != 4 {
			t.Fatalf("%+v, %v", reply, err)
		}
		r.wantHistory("user:first", "assistant:one", "user:second", "assistant:three")
		if asked := r.model.asked()[3].Messages; len(asked) != 3 || asked[2].Content != "second" {
			t.Errorf("the model was sent %+v", asked)
		}
	})
}

func TestRegenerateNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{})
		ev := &events{}
		_, err := r.engine.Ask(t.Context(), Ask{Key: key, Regenerate: true}, ev.emit)
		wantCode(t, err, ev, CodeNoUserMessage)
		r.free()
	})
}

func TestTitles(t *testing.T) {
	long := strings.Repeat("word ", 20)
	for _, c := range []struct{ said, want string }{
		{"\n\n  Turn   the\tlamp on \nplease", "Turn the lamp on"},
		{long, strings.TrimSuffix(strings.Repeat("word ", 12), " ") + "…"},
		{strings.Repeat("ä", 100), strings.Repeat("ä", 59) + "…"},
		{"\x1b[31mred\x1b[0m", "red"},
		{strings.Repeat("a", 60), strings.Repeat("a", 60)},
	} {
		got := titleOf([]provider.Message{{Role: provider.RoleAssistant, Content: "x"},
			{Role: provider.RoleUser, Content: c.said}})
		if got != c.want {
			t.Errorf("title of %q: %q, want %q", c.said, got, c.want)
		}
	}
}

func TestTitleIsGivenOnceAndOnlyAfterACompletedTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fails := func(context.Context, provider.Request, func(provider.Delta)) (provider.Answer, error) {
			return provider.Answer{}, &provider.Error{Kind: provider.KindFailure, Message: "down"}
		}
		r := newRig(t, Limits{}, fails, text("a"), text("b"))
		_, ev, err := r.ask(t.Context(), "first")
		wantCode(t, err, ev, CodeProvider)
		_, ev = r.must("second")
		if got := ev.of(EventTitle); len(got) != 1 || got[0].Title != "first" {
			t.Errorf("title %+v", got)
		}
		reply, ev := r.must("third")
		if len(ev.of(EventTitle)) != 0 || reply.Title != "first" {
			t.Errorf("titled again: %v, %q", ev.types(), reply.Title)
		}
	})
}

func TestProviderErrors(t *testing.T) {
	for kind, code := range map[provider.Kind]string{
		provider.KindAuth: CodeAuth, provider.KindBroken: CodeProvider, provider.KindLimit: CodeProvider,
		provider.KindRequest: CodeProvider,
	} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, Limits{}, func(_ context.Context, _ provider.Request,
				emit func(provider.Delta)) (provider.Answer, error) {
				emit(provider.Delta{Text: "The answer is"})
				return provider.Answer{Message: provider.Message{ToolCalls: []provider.ToolCall{tool("c", "half",
						`{"a`)}}},
					&provider.Error{Kind: kind, Message: "it broke"}
			}, text("fine"))
			_, ev, err := r.ask(t.Context(), "hi")
			wantCode(t, err, ev, code)
			r.wantHistory("user:hi", "assistant:The answer is interrupted")
			r.free()
			r.must("again")
		})
	}
}

func TestDebugPromptShowsWhatIsSent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, use(tool("c", "look", "{}")), text("ok"))
		r.tools.set("look", returns("x"))
		ev := &events{}
		if _, err := r.engine.Ask(t.Context(), Ask{Key: key, Content: "hi", Debug: true}, ev.emit); err != nil {
			t.Fatal(err)
		}
		shown := ev.of(EventDebugPrompt)
		if len(shown) != 2 {
			t.Fatalf("%d debug prompts, want one a request", len(shown))
		}
		for i, request := range r.model.plain() {
			m := shown[i].Messages
			for j := range m {
				m[j].Content = strings.ReplaceAll(m[j].Content, "…\"", testMark.nonce+"\"")
			}
			if m[0].Role != provider.RoleSystem || m[0].Content != request.System ||
				len(m) != len(request.Messages)+1 ||
				line(m[len(m)-1]) != line(request.Messages[len(request.Messages)-1]) || shown[i].EstimatedTokens <= 0 {
				t.Errorf("shown %+v, sent %+v", shown[i], request)
			}
		}
	})
}

func TestTranscriptAndCount(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reached := make(chan struct{})
		r := newRig(t, Limits{}, text("one"), hang("two", reached))
		r.must("first")
		ctx, abort := context.WithCancelCause(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _, _, _ = r.ask(ctx, "second") }()
		<-reached
		tr, err := r.engine.Transcript(t.Context(), key)
		if err != nil || !tr.Busy || tr.Title != "first" || len(tr.Messages) != 3 {
			t.Errorf("%+v, %v", tr, err)
		}
		abort(ErrAborted)
		<-ended
		tr, err = r.engine.Transcript(t.Context(), key)
		if err != nil || tr.Busy || len(tr.Messages) != 4 || !tr.Messages[3].Interrupted {
			t.Errorf("%+v, %v", tr, err)
		}
		if n, err := r.engine.CountMessages(t.Context(), key); n != 4 || err != nil {
			t.Errorf("%d messages, %v", n, err)
		}
		if _, err := r.engine.Transcript(t.Context(), registry.Key{}); err == nil {
			t.Error("a transcript of nobody")
		}
	})
}

// heard is an Activity that remembers.
type heard struct {
	started  []TurnInfo
	finished []TurnEnd
}

func (h *heard) TurnStarted(i TurnInfo)             { h.started = append(h.started, i) }
func (h *heard) TurnFinished(_ TurnInfo, e TurnEnd) { h.finished = append(h.finished, e) }

func TestActivity(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &heard{}
		r := newRig(t, Limits{}, use(tool("a", "look", "{}")), text("ok"))
		r.tools.set("look", returns("x"))
		r.engine.cfg.Activity = h
		caller := auth.Identity{Tenant: "default", User: "ann"}
		if _, err := r.engine.Ask(t.Context(), Ask{Key: key, Caller: caller, Content: "hi"}, nil); err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.ask(t.Context(), "more"); err == nil {
			t.Fatal("the script has no more answers, the turn succeeded")
		}
		if len(h.started) != 2 || h.started[0].Caller != caller || h.started[0].Model != "scripted" ||
			h.started[0].Turn == "" {
			t.Errorf("started %+v", h.started)
		}
		if h.finished[0].Outcome != OutcomeDone || h.finished[0].Calls != 1 || h.finished[0].Usage.Output != 10 ||
			h.finished[0].Answers != 2 || h.finished[0].Failure != "" {
			t.Errorf("finished %+v", h.finished[0])
		}
		if h.finished[1].Outcome != OutcomeError || h.finished[1].Code != CodeProvider ||
			h.finished[1].Answers != 0 || h.finished[1].Failure == "" {
			t.Errorf("finished %+v", h.finished[1])
		}
	})
}

func TestPanicOfAModelEndsTheTurnOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, func(context.Context, provider.Request, func(provider.Delta)) (provider.Answer,
			error) {
			panic("boom")
		}, text("fine"))
		_, ev, err := r.ask(t.Context(), "hi")
		if e := wantCode(t, err, ev, CodeAgent); strings.Contains(e.Message, "boom") {
			t.Error("internals are shown to people")
		}
		r.free()
		r.must("again")
	})
}

func TestConfigIsChecked(t *testing.T) {
	m, s := &script{}, newFaulty()
	for name, cfg := range map[string]Config{
		"no model":     {Store: s},
		"no store":     {Models: []provider.Model{m}},
		"same name":    {Models: []provider.Model{m, &script{}}, Store: s},
		"bad limit":    {Models: []provider.Model{m}, Store: s, Limits: Limits{Turn: -1}},
		"small result": {Models: []provider.Model{m}, Store: s, Limits: Limits{MaxResult: 10}},
	} {
		if _, err := NewEngine(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

package main

import (
	"net/http"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/provider/scripted"
)

// vendors are the providers whose formats the model servers of these tests speak.
var vendors = []string{providerOpenAI, providerAnthropic}

// stage is one model server on which many conversations are played at once, each by a script of its own. Which one a
// request belongs to is told by the tag in its first message.
type stage struct {
	*scripted.Server
	vendor string

	mu    sync.Mutex
	plays map[string]*play
}

// play is the script of one conversation and what its model was asked.
type play struct {
	t testing.TB

	mu    sync.Mutex
	steps []scripted.Step
	heard []scripted.Request
}

// tag marks the messages of a conversation.
func tag(name string) string { return "#" + name + "#" }

var tagged = regexp.MustCompile(`#([a-z0-9-]+)#`)

func openStage(t testing.TB, vendor string) *stage {
	t.Helper()
	s := &stage{vendor: vendor, plays: make(map[string]*play)}
	answer := func(r scripted.Request) scripted.Step {
		s.mu.Lock()
		p := s.plays[tagOf(r)]
		s.mu.Unlock()
		if p == nil {
			t.Errorf("a request of no conversation: %s", r.Raw)
			return scripted.Fail(http.StatusBadRequest, "no such conversation")
		}
		return p.next(r)
	}
	if vendor == providerAnthropic {
		s.Server = scripted.AnthropicFunc(t, answer)
	} else {
		s.Server = scripted.OpenAIFunc(t, answer)
	}
	return s
}

// tagOf returns the tag of a request's conversation.
func tagOf(r scripted.Request) string {
	for _, m := range r.Messages {
		if found := tagged.FindStringSubmatch(m.Content); found != nil && m.Role == provider.RoleUser {
			return found[1]
		}
	}
	return ""
}

// settings are those of pods whose model is on the stage.
func (s *stage) settings() []string {
	return []string{"FARHAND_MODEL=m", "FARHAND_MODEL_PROVIDER=" + s.vendor, "FARHAND_MODEL_URL=" + s.URL,
		"FARHAND_MODEL_KEY=sk-of-nobody"}
}

// script adds to what the model of a conversation says. All of it must have been asked for when the test ends.
func (s *stage) script(t testing.TB, name string, steps ...scripted.Step) *play {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.plays[name]
	if p == nil {
		p = &play{t: t}
		s.plays[name] = p
		t.Cleanup(func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if len(p.steps) > 0 && !t.Failed() {
				t.Errorf("%s: the model was not asked for its last %d answers", name, len(p.steps))
			}
		})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps = append(p.steps, steps...)
	return p
}

func (p *play) next(r scripted.Request) scripted.Step {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = append(p.heard, r)
	if len(p.steps) == 0 {
		p.t.Errorf("the model is asked once too often: %s", r.Raw)
		return scripted.Fail(http.StatusBadRequest, "the script is over")
	}
	step := p.steps[0]
	p.steps = p.steps[1:]
	return step
}

// asked returns the n-th request to the model of a conversation, counted from zero.
func (p *play) asked(n int) scripted.Request {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if n >= len(p.heard) {
		p.t.Fatalf("the model was asked %d times, not %d", len(p.heard), n+1)
	}
	return p.heard[n]
}

// offered reports whether a request told the model of a tool.
func offered(r scripted.Request, tool string) bool {
	return slices.ContainsFunc(r.Tools, func(t provider.Tool) bool { return t.Name == tool })
}

// calling is an answer that asks for tools.
func calling(calls ...scripted.Call) scripted.Step { return scripted.Reply(scripted.Calls(calls...)) }

// saying is an answer in words.
func saying(pieces ...string) scripted.Step { return scripted.Reply(scripted.Text(pieces...)) }

// echoing is a call of the tool that returns its arguments.
func echoing(args string) scripted.Call { return scripted.Call{Name: "echo", Args: args} }

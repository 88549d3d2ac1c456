package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/ws/client"
)

// What a looping model receives, and from which call on.
const (
	loopWarned  = 10
	loopStopped = 20
	loopWarning = "[Farhand: this is the "
)

// loop is a model that never learns, and what must become of it.
type loop struct {
	tools   []string // called one after the other, again and again
	args    string
	perTurn int // calls, until it says something and the user says "go on"
	stopped int // the call that ends the turn
	warned  bool
	error   string // what people are told then
	ran     []int  // how often the device ran each of the tools; nil: they are not its own
}

var loops = map[string]loop{
	"one-turn": {
		tools: []string{"look"}, args: `{"at":"the door"}`, perTurn: 1000, stopped: loopStopped, warned: true,
		error: `the 20th identical call of "look" with the same result`, ran: []int{19},
	},
	"a-device": {
		tools: []string{"look"}, args: `{"at":"the door"}`, perTurn: 3, stopped: loopStopped, warned: true,
		error: `the 20th identical call of "look" with the same result`, ran: []int{19},
	},
	"a-failing-tool": {
		tools: []string{"fail"}, args: `{}`, perTurn: 3, stopped: loopStopped, warned: true,
		error: `the 20th identical call of "fail" with the same result`, ran: []int{0, 0, 19},
	},
	"the-gateway": {
		tools: []string{"sessions"}, args: `{"tool":"no_such_tool"}`, perTurn: 5, stopped: loopStopped, warned: true,
		error: `the 20th identical call of "sessions" with the same result`,
	},
	"ping-pong": {
		tools: []string{"look", "listen"}, args: `{}`, perTurn: 5, stopped: loopStopped, warned: true,
		error: `the 20th call in a row that alternates between "listen" and another call`, ran: []int{10, 9},
	},
	"device-and-gateway": {
		tools: []string{"look", "sessions"}, args: `{"tool":"no_such_tool"}`, perTurn: 5, stopped: loopStopped,
		warned: true,
		error:  `the 20th call in a row that alternates between "sessions" and another call`, ran: []int{10},
	},
	"an-unknown-tool": {
		tools: []string{"guess"}, args: `{}`, perTurn: 4, stopped: loopWarned,
		error: `there is no tool "guess", and it was called 10 times in a row`,
	},
}

// script plays the model of all loops: whatever it reads, it calls on.
func (l loop) script(r scripted.Request) scripted.Step {
	called, inTurn := 0, 0
	for _, m := range r.Messages {
		called += len(m.ToolCalls)
		inTurn += len(m.ToolCalls)
		if m.Role == provider.RoleUser {
			inTurn = 0
		}
	}
	switch {
	case r.Messages[len(r.Messages)-1].Content == "stop it":
		return scripted.Reply(scripted.Text("I have looked often enough."))
	case inTurn == l.perTurn:
		return scripted.Reply(scripted.Text("I am still looking."))
	default:
		return scripted.Reply(scripted.Calls(scripted.Call{Name: l.tools[called%len(l.tools)], Args: l.args}))
	}
}

// TestModelThatLoops: it is warned in what it reads, and then its turn ends. Pods count together.
func TestModelThatLoops(t *testing.T) {
	t.Parallel()
	model := scripted.OpenAIFunc(t, func(r scripted.Request) scripted.Step {
		l, ok := loops[r.Messages[0].Content]
		if !ok {
			t.Errorf("unknown conversation: %s", r.Raw)
			return scripted.Fail(400, "what?")
		}
		return l.script(r)
	})
	pods := startFleet(t, 2, redistest.Single(t), agentSettings(providerOpenAI, model)...)
	for name, l := range loops {
		t.Run(name, func(t *testing.T) { l.run(t, name, pods) })
	}
	warnings := make(map[string]int) // that the model read
	for _, r := range model.Requests() {
		if r.Refused != "" {
			t.Errorf("refused: %s", r.Refused)
		}
		if role, content := lastOf(r); role == string(provider.RoleTool) && strings.Contains(content, loopWarning) {
			warnings[r.Messages[0].Content]++
		}
	}
	for name, l := range loops {
		want := 0
		if l.warned {
			want = loopStopped - loopWarned
		}
		if warnings[name] != want {
			t.Errorf("%s: the model read %d warnings, want %d", name, warnings[name], want)
		}
	}
}

func (l loop) run(t *testing.T, session string, pods []*pod) {
	var ran [3]atomic.Int64
	says := func(n int, text string) func(context.Context, client.Call) (any, error) {
		return func(context.Context, client.Call) (any, error) { ran[n].Add(1); return text, nil }
	}
	connectDevice(t, pods[0].url, session,
		client.WithTool(client.Tool{Name: "look", Description: "looks"}, says(0, "nothing to be seen")),
		client.WithTool(client.Tool{Name: "listen", Description: "listens"}, says(1, "nothing to be heard")),
		client.WithTool(client.Tool{Name: "fail", Description: "fails"},
			func(context.Context, client.Call) (any, error) {
				ran[2].Add(1)
				return nil, fmt.Errorf("the door is locked")
			}))

	// Turns are asked at one pod and the other, until one is stopped.
	said, turns := session, 0
	var last chatEvent
	for ; turns < loopStopped; turns++ {
		events, _ := turnOverHTTP(t, pods[turns%2].url, session, said)
		if last = events[len(events)-1]; last.Type != "done" {
			break
		}
		said = "go on"
	}
	if want := (l.stopped - 1) / l.perTurn; turns != want {
		t.Errorf("stopped after %d turns, want %d", turns, want)
	}
	if last.Type != "error" || last.Code != "AGENT_ERROR" || !strings.Contains(last.Message, l.error) ||
		!strings.HasPrefix(last.Message, "The turn was stopped: it called ") {
		t.Errorf("the last turn ended with %+v", last)
	}
	for n, want := range l.ran {
		if got := ran[n].Load(); got != int64(want) {
			t.Errorf("the device ran its tool %d %d times, want %d", n, got, want)
		}
	}
	l.checkResults(t, transcriptOf(t, pods[turns%2].url, session))

	// Nothing is broken: the next turn works, at the other pod.
	events, _ := turnOverHTTP(t, pods[(turns+1)%2].url, session, "stop it")
	if end := events[len(events)-1]; end.Type != "done" || end.FullResponse != "I have looked often enough." {
		t.Errorf("the next turn ended with %+v", end)
	}
}

// checkResults looks at what the model read of each call.
func (l loop) checkResults(t *testing.T, said []transcriptMessage) {
	t.Helper()
	n := 0
	for _, m := range said {
		if m.Role != string(provider.RoleTool) {
			continue
		}
		n++
		warning := strings.Contains(m.Content, fmt.Sprintf("%s%dth ", loopWarning, n))
		if want := l.warned && n >= loopWarned && n < loopStopped; warning != want ||
			strings.Count(m.Content, loopWarning) > 1 {
			t.Errorf("result %d: warning %v, want %v: %s", n, warning, want, m.Content)
		}
		if stopped := m.Failed && strings.Contains(m.Content, "The call was stopped: "); stopped != (n == l.stopped) {
			t.Errorf("result %d: stopped %v: %s", n, stopped, m.Content)
		}
	}
	if n != l.stopped {
		t.Errorf("%d results, want %d", n, l.stopped)
	}
}

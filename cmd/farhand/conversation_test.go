package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/redisstore/redistest"
)

// layout is which pods take part in a conversation. With one pod all three are the same.
type layout struct {
	name   string
	device string // where the device is connected
	askAt  string // where things are said over HTTP
	reader string // where it is read what was said, and where devices move to
}

// The endpoints of a conversation.
const (
	viaHTTP   = "http"
	viaSocket = "socket"
)

// TestConversations plays every kind of conversation with each provider, on one pod and across three, and through both
// endpoints.
func TestConversations(t *testing.T) {
	t.Parallel()
	redis := redistest.Single(t)
	for _, vendor := range vendors {
		model := openStage(t, vendor)
		alone := startPod(t, model.settings()...).url
		fleet := startFleet(t, 3, redis, model.settings()...)
		for _, l := range []layout{
			{"alone", alone, alone, alone},
			{"apart", fleet[1].url, fleet[0].url, fleet[2].url},
		} {
			for _, endpoint := range []string{viaHTTP, viaSocket} {
				for _, name := range slices.Sorted(maps.Keys(conversations)) {
					t.Run(fmt.Sprintf("%s/%s/%s/%s", vendor, l.name, endpoint, name), func(t *testing.T) {
						t.Parallel()
						s := newScene(t, model, l, endpoint, strings.ReplaceAll(name, " ", "-"))
						conversations[name](s)
						s.transcript() // is whole, however it ended
					})
				}
			}
		}
	}
}

// conversations are the cases of TestConversations.
var conversations = map[string]func(*scene){
	"plain text":              plainText,
	"thinking":                thinking,
	"one call":                oneCall,
	"parallel calls":          parallelCalls,
	"several iterations":      severalIterations,
	"malformed arguments":     malformedArguments,
	"unknown tool":            unknownTool,
	"failing tool":            failingTool,
	"slow tokens":             slowTokens,
	"broken stream":           brokenStream,
	"broken call":             brokenCall,
	"key refused":             keyRefused,
	"too many requests":       tooManyRequests,
	"abort in words":          abortInWords,
	"abort in a call":         abortInACall,
	"abort unheard":           abortUnheard,
	"regenerate":              regenerate,
	"nothing to regenerate":   nothingToRegenerate,
	"debug prompt":            debugPrompt,
	"tools change":            toolsChange,
	"the second waits":        theSecondWaits,
	"endpoints take turns":    endpointsTakeTurns,
	"too many wait":           tooManyWait,
	"reconnect elsewhere":     reconnectElsewhere,
	"device gone in words":    deviceGoneInWords,
	"device gone in a call":   deviceGoneInACall,
	"chat completions beside": completionsBeside,
}

// scene is one conversation under test.
type scene struct {
	testing.TB
	*play
	layout

	model    *stage
	endpoint string
	name     string // of the session, and the tag
	phone    *phone
	abort    func() // ends the turn that was begun last, as the endpoint has it
}

func newScene(t testing.TB, model *stage, l layout, endpoint, name string) *scene {
	s := &scene{TB: t, layout: l, model: model, endpoint: endpoint,
		name: fmt.Sprintf("%s-%s-%s-%s", name, model.vendor, l.name, endpoint)}
	s.play = model.script(t, s.name)
	s.phone = connectPhone(t, l.device, s.name, nil)
	if s.phone.opening.Resumed || s.phone.opening.MessageCount != 0 {
		t.Errorf("a new session begins with %+v", s.phone.opening)
	}
	return s
}

// answers adds to what the model says.
func (s *scene) answers(steps ...scripted.Step) { s.model.script(s.TB, s.name, steps...) }

// begin says something and returns where its turn is heard.
func (s *scene) begin(text string) *inbox {
	s.Helper()
	return s.beginWith(map[string]any{"content": tag(s.name) + " " + text})
}

func (s *scene) beginWith(body map[string]any) *inbox {
	s.Helper()
	if s.endpoint == viaHTTP {
		events, disconnect := post(s.TB, s.askAt, s.name, body)
		s.abort = disconnect
		return events
	}
	body["type"] = "message"
	if body["regenerate"] != nil {
		body = map[string]any{"type": "regenerate"}
	}
	s.phone.send(body)
	s.abort = func() { s.phone.send(map[string]any{"type": "abort"}) }
	return s.phone.inbox
}

// turn says something and returns the events of the whole turn.
func (s *scene) turn(text string) []said {
	s.Helper()
	return rest(s.begin(text))
}

// good is a turn that ends well. It returns its events and checks what holds of all of them.
func (s *scene) good(text string) []said {
	s.Helper()
	return s.goodEnd(s.turn(text))
}

func (s *scene) goodEnd(events []said) []said {
	s.Helper()
	last := events[len(events)-1]
	if last.Type != "done" || len(events) < 2 || events[len(events)-2].Type != "chunk_reset" {
		s.Fatalf("the turn ended with %+v", events[max(0, len(events)-2):])
	}
	if text := textOf(events); last.FullResponse != text {
		s.Errorf("full_response %q, but streamed was %q", last.FullResponse, text)
	}
	return events
}

// rest returns the events of a turn until its end, without the frames that are not of it.
func rest(events *inbox) []said {
	events.t.Helper()
	return slices.DeleteFunc(slices.Clone(events.until("end of the turn", said.ended)), func(e said) bool {
		return !e.ended() && !ofType("chunk", "thinking", "tool_call", "tool_result", "chunk_reset", "title_updated",
			"debug_prompt")(e)
	})
}

// textOf joins the chunks.
func textOf(events []said) string {
	var b strings.Builder
	for _, e := range events {
		if e.Type == "chunk" {
			b.WriteString(e.Content)
		}
	}
	return b.String()
}

// only returns the events of a type.
func only(events []said, typ string) []said {
	return slices.DeleteFunc(slices.Clone(events), func(e said) bool { return e.Type != typ })
}

// failsWith says something whose turn must fail with a code.
func (s *scene) failsWith(code, text string) []said {
	s.Helper()
	events := s.turn(text)
	if last := events[len(events)-1]; last.Type != "error" || last.Code != code || last.Message == "" {
		s.Fatalf("the turn ended with %+v, want %s", last, code)
	}
	return events
}

// transcript is a conversation as people read it.
type transcript struct {
	Title        string `json:"title"`
	Busy         bool   `json:"busy"`
	MessageCount int    `json:"message_count"`
	Messages     []line `json:"messages"`
	raw          string
}

type line struct {
	Role      string `json:"role"`
	Content   string `json:"content"`
	Thinking  string `json:"thinking"`
	ToolCalls []struct {
		ID   string          `json:"id"`
		Name string          `json:"name"`
		Args json.RawMessage `json:"args"`
	} `json:"tool_calls"`
	ToolCallID  string `json:"tool_call_id"`
	Failed      bool   `json:"failed"`
	Interrupted bool   `json:"interrupted"`
}

// shape is the transcript in short: u, a and t for its roles, a2 for two calls, ! for a failed result, ~ for what was
// interrupted.
func (tr transcript) shape() string {
	var b strings.Builder
	for i, m := range tr.Messages {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(m.Role[:1])
		if n := len(m.ToolCalls); n > 0 {
			fmt.Fprint(&b, n)
		}
		if m.Failed {
			b.WriteByte('!')
		}
		if m.Interrupted {
			b.WriteByte('~')
		}
	}
	return b.String()
}

// whole reports the first call that is not answered right after it was made, or result without a call.
func (tr transcript) whole() error {
	open := make(map[string]bool)
	for i, m := range tr.Messages {
		if m.Role == "tool" {
			if !open[m.ToolCallID] {
				return fmt.Errorf("message %d answers no call", i)
			}
			delete(open, m.ToolCallID)
			continue
		}
		if len(open) > 0 {
			return fmt.Errorf("before message %d calls are open: %v", i, open)
		}
		for _, c := range m.ToolCalls {
			open[c.ID] = true
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("calls are open at the end: %v", open)
	}
	return nil
}

func readTranscript(t testing.TB, url, session string) transcript {
	t.Helper()
	status, raw := request(t, http.MethodGet, url+"/api/sessions/"+session+"/messages?limit=1000", "")
	tr := transcript{raw: string(raw)}
	if err := json.Unmarshal(raw, &tr); err != nil || status != http.StatusOK {
		t.Fatalf("transcript of %s: %d %s", session, status, raw)
	}
	if tr.MessageCount != len(tr.Messages) {
		t.Errorf("transcript of %s: %d messages, but message_count %d", session, len(tr.Messages), tr.MessageCount)
	}
	return tr
}

// settledTranscript waits until no turn is under way, and checks that the transcript is whole.
func settledTranscript(t testing.TB, url, session string) (tr transcript) {
	t.Helper()
	eventually(t, waitLimit, "the turn of "+session+" has ended", func() bool {
		tr = readTranscript(t, url, session)
		return !tr.Busy
	})
	if err := tr.whole(); err != nil {
		t.Errorf("%s: %v: %s", session, err, tr.raw)
	}
	return tr
}

// transcript returns the conversation once no turn is under way, read on the third pod.
func (s *scene) transcript() transcript {
	s.Helper()
	return settledTranscript(s.TB, s.reader, s.name)
}

// looks checks the shape of the transcript and returns it.
func (s *scene) looks(shape string) transcript {
	s.Helper()
	tr := s.transcript()
	if tr.shape() != shape {
		s.Fatalf("the transcript looks like %q, want %q: %s", tr.shape(), shape, tr.raw)
	}
	return tr
}

package ws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
)

// EndAllAfter does to all connections what a drain does when its time is over, with this grace.
func EndAllAfter(s *Server, grace time.Duration) {
	now := time.Now()
	d := &drain{cutoff: now, grace: grace}
	for _, c := range s.snapshot() {
		d.waiting = append(d.waiting, departure{c, now})
	}
	d.step(now)
}

// The grace of cancelled turns must leave time for what comes after them.
func TestDrainHasTimeForTheGrace(t *testing.T) {
	for limit, want := range map[time.Duration]time.Duration{time.Minute: 500 * time.Millisecond,
		time.Second: 50 * time.Millisecond} {
		now := time.Now()
		ctx, cancel := context.WithDeadline(t.Context(), now.Add(limit))
		defer cancel()
		if d := newDrain(ctx, nil, now); d.grace != want || d.cutoff != now.Add(limit-2*want) {
			t.Errorf("%v limit: %v of grace from %v on", limit, d.grace, d.cutoff.Sub(now))
		}
	}
}

// Len returns the number of connections.
func (s *Server) Len() int { return len(s.snapshot()) }

// TurnWorkers returns how many connections have a turn worker, for the tests from outside.
func TurnWorkers(s *Server) int {
	n := 0
	for _, c := range s.snapshot() {
		c.mu.Lock()
		if c.worker != nil {
			n++
		}
		c.mu.Unlock()
	}
	return n
}

// UnhandledBytes returns how many bytes were received and are not handled.
func UnhandledBytes(s *Server) int64 { return s.intake.held() }

// HeldMessages returns how many bytes the messages have whose turns run or wait.
func HeldMessages(s *Server) int64 { return s.asks.Stats().Held }

// Send queues a frame of n bytes to the device of a session, and returns what its outbox has.
func Send(s *Server, session string, n int) (unsent int, err error) {
	for _, c := range s.snapshot() {
		if l := c.claimed(); l != nil && l.Session().Key.Session == session {
			if n > 0 {
				err = c.send([]byte(`{"type":"event","text":"` + strings.Repeat("x", n) + `"}`))
			}
			_, unsent = c.out.waiting()
			return unsent, err
		}
	}
	return 0, errors.New("there is no such session")
}

// HoldDecoding takes all slots for decoding long frames, until release is called.
func HoldDecoding(s *Server) (release func()) {
	held := append(holdDecoding(s.decoding), holdDecoding(s.huge)...)
	return func() {
		for _, slot := range held {
			slot.Release()
		}
	}
}

func holdDecoding(slots *share.Pool) (held []*share.Grant) {
	for {
		slot, err := slots.Try(share.Owner{Tenant: fmt.Sprint("holder ", len(held))}, 1)
		if err != nil {
			return held
		}
		held = append(held, slot)
	}
}

// waitingAgent is an agent whose turns last until they are released.
type waitingAgent struct {
	chat.Agent
	release chan struct{}
}

func (a waitingAgent) Ask(context.Context, chat.Ask, func(chat.Event)) (chat.Reply, error) {
	<-a.release
	return chat.Reply{}, nil
}

// The turn of a connection that is ending may end before the connection has forgotten the messages that wait. Their
// bytes are free from then on.
func TestMessagesThatWaitAreForgottenWithTheLastTurn(t *testing.T) {
	agent := waitingAgent{release: make(chan struct{})}
	c := connWithoutSocket(t, Config{Agent: agent})
	for range 1 + maxWaiting {
		if err := c.message(&messageFrame{Content: "how warm is it?"}); err != nil {
			t.Fatal(err)
		}
	}
	c.mu.Lock()
	worker := c.worker
	c.closing = CloseTooBig
	c.mu.Unlock()
	close(agent.release)
	if !worker.wait(testkit.Limit) {
		t.Fatal("the turn has not ended")
	}
	if held := HeldMessages(c.server); held != 0 {
		t.Errorf("%d bytes are held for messages that no turn will answer", held)
	}
}

// A tenant whose long frames all wait to be decoded does not keep that of another tenant waiting for all of them.
func TestTenantsTakeTurnsToBeDecoded(t *testing.T) {
	s := connWithoutSocket(t, Config{}).server
	huge, err := s.acquireDecodeSlot(share.Owner{Tenant: "greedy"}, hugeFrame)
	if err != nil {
		t.Fatal(err)
	}
	defer huge.Release() // which keeps none of the others waiting
	held, decoded := holdDecoding(s.decoding), make(chan string, 4)
	for i, tenant := range []string{"greedy", "greedy", "greedy", "honest"} {
		go func() {
			slot, err := s.acquireDecodeSlot(share.Owner{Tenant: tenant}, longFrame)
			if err != nil {
				tenant = err.Error()
			}
			decoded <- tenant
			slot.Release()
		}()
		testkit.Eventually(t, "it waits", func() bool { return s.decoding.Stats().Waiting == int64(i+1) })
	}
	held[0].Release() // one slot goes from one to the other
	if first, second := <-decoded, <-decoded; first != "honest" && second != "honest" {
		t.Errorf("decoded were frames of %s, then of %s", first, second)
	}
	<-decoded
	<-decoded
	for _, slot := range held {
		slot.Release()
	}
}

func TestFramesOfAConversation(t *testing.T) {
	for _, tc := range []struct {
		event chat.Event
		want  string
	}{
		{chat.Event{Type: chat.EventChunk, Content: "a \"b\"\\\n\t\x01<&>\u2028ü\xff"},
			`{"type":"chunk","content":"a \"b\"\\\n\t\u0001<&>\u2028ü\ufffd"}`},
		{chat.Event{Type: chat.EventThinking, Content: "hm"}, `{"type":"thinking","content":"hm"}`},
		{chat.Event{Type: chat.EventToolCall, ID: "1", Name: "echo",
			Args: json.RawMessage(`{"n":12345678901234567890}`), Status: chat.StatusPending},
			`{"type":"tool_call","id":"1","name":"echo","args":{"n":12345678901234567890},"status":"pending"}`},
		{chat.Event{Type: chat.EventToolCall, ID: "1", Name: "echo"},
			`{"type":"tool_call","id":"1","name":"echo","args":{}}`},
		{chat.Event{Type: chat.EventToolCall, ID: "1", Name: "echo", Args: json.RawMessage(`null`)},
			`{"type":"tool_call","id":"1","name":"echo","args":{"text":"null"}}`},
		{chat.Event{Type: chat.EventToolCall, ID: "1", Name: "echo", Args: json.RawMessage(`{"cut off`)},
			`{"type":"tool_call","id":"1","name":"echo","args":{"text":"{\"cut off"}}`},
		{chat.Event{Type: chat.EventToolCall, ID: "1", Name: "echo", Args: json.RawMessage("{\"a\":\"\xff\"}")},
			`{"type":"tool_call","id":"1","name":"echo","args":{"text":"{\"a\":\"\ufffd\"}"}}`},
		{chat.Event{Type: chat.EventToolResult, ID: "1", Name: "echo", Output: "out", Status: chat.StatusFailed},
			`{"type":"tool_result","id":"1","name":"echo","output":"out","status":"failed"}`},
		{chat.Event{Type: chat.EventToolResult, ID: "1", Name: "camera", Parts: []registry.Part{
			{Type: registry.PartImage, MIMEType: "image/png", URL: "https://x", Size: 7}}},
			`{"type":"tool_result","id":"1","name":"camera","output":"","parts":[{"type":"image",` +
				`"mime_type":"image/png","url":"https://x","size":7}]}`},
		{chat.Event{Type: chat.EventChunkReset}, `{"type":"chunk_reset"}`},
		{chat.Event{Type: chat.EventDone, FullResponse: "all"}, `{"type":"done","full_response":"all"}`},
		{chat.Event{Type: chat.EventDone}, `{"type":"done","full_response":""}`},
		{chat.Event{Type: chat.EventAborted}, `{"type":"aborted"}`},
		{chat.Event{Type: chat.EventTitle, Title: "Tea"}, `{"type":"title_updated","title":"Tea"}`},
		{chat.Event{Type: chat.EventDebugPrompt, EstimatedTokens: 7,
			Messages: []provider.Message{{Role: provider.RoleUser, Content: "hi"}}},
			`{"type":"debug_prompt","messages":"[{\"role\":\"user\",\"content\":\"hi\"}]","estimated_tokens":7}`},
		{chat.Event{Type: chat.EventDebugPrompt}, `{"type":"debug_prompt","messages":"[]","estimated_tokens":0}`},
		{chat.Event{Type: chat.EventError, Code: chat.CodeProvider, Message: "no"},
			`{"type":"error","message":"no","code":"PROVIDER_ERROR"}`},
		{chat.Event{Type: "of a newer agent"}, ``},
	} {
		if got := string(eventFrame(tc.event)); got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
	if got := string(abortAckFrame(statusAborted, 2)); got != `{"type":"abort_ack","status":"aborted","dropped":2}` {
		t.Error(got)
	}
	if got := string(abortAckFrame(statusNoActive, 0)); got != `{"type":"abort_ack","status":"no_active_response"}` {
		t.Error(got)
	}
}

func TestAPieceCostsOneAllocation(t *testing.T) {
	text := strings.Repeat("some words of an answer, ", 4)
	if n := testing.AllocsPerRun(100, func() { pieceFrame(chat.EventChunk, text) }); n != 1 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkChunkFrame(b *testing.B) {
	for name, text := range map[string]string{"word": "wonderful ", "unicode": "größer – \"schöner\"\n"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				pieceFrame(chat.EventChunk, text)
			}
		})
	}
}

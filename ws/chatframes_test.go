package ws

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
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

// HoldDecoding takes all slots for decoding long frames, until release is called.
func HoldDecoding(s *Server) (release func()) {
	for range cap(s.decoding) {
		s.decoding <- struct{}{}
	}
	return func() {
		for range cap(s.decoding) {
			<-s.decoding
		}
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

package ws_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
)

// v1Client shows a conversation as ClawSeed's Android client does: unknown types and fields are ignored, but a field it
// knows with a value of another kind throws in its reader, which costs it the connection.
type v1Client struct {
	screen []string
	draft  string
}

// show handles one frame as the client does.
func (c *v1Client) show(data []byte) (err error) {
	var f map[string]json.RawMessage
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	text := func(key string) string { // a string, a number or a truth value
		raw := strings.TrimSpace(string(f[key]))
		if strings.HasPrefix(raw, "{") || strings.HasPrefix(raw, "[") {
			err = fmt.Errorf("%s is not primitive: %s", key, raw)
		}
		var s string
		if json.Unmarshal(f[key], &s) != nil {
			return raw
		}
		return s
	}
	object := func(key string) string {
		if raw, there := f[key]; there && !strings.HasPrefix(strings.TrimSpace(string(raw)), "{") {
			err = fmt.Errorf("%s is not an object: %s", key, raw)
		}
		return string(f[key])
	}
	line := func(kind string, rest ...string) { c.screen = append(c.screen, kind+": "+strings.Join(rest, " ")) }
	switch text("type") {
	case "session_start":
		line("session", text("session_id"), text("resumed"), text("message_count"))
	case "chunk":
		c.draft += text("content")
	case "thinking":
		line("thinking", text("content"))
	case "chunk_reset":
		c.draft = ""
	case "done":
		line("assistant", text("full_response"), c.draft)
	case "tool_call":
		line("call", text("id"), text("name"), object("args"))
	case "tool_result":
		line("result", text("id"), text("name"), text("output"))
	case "aborted", "abort_ack":
		line("aborted")
	case "title_updated":
		line("title", text("title"))
	case "debug_prompt":
		line("debug", text("messages"), text("estimated_tokens"))
	case "error":
		line("error", text("code"), text("message"))
	}
	return err
}

// TestConversationWithAVersion1Client: what a client of version 1 shows of a conversation, its quirks included.
func TestConversationWithAVersion1Client(t *testing.T) {
	t.Parallel()
	g, agent := newTalkative(t)
	d := g.dial("v1")
	d.send(`{"type":"connect","v":1,"session_id":"v1"}`)
	d.send(`{"type":"message","content":"hi","debug":true}`)
	turn := agent.next(t)
	call := chat.Event{Type: chat.EventToolCall, ID: "c", Name: "look", Args: json.RawMessage(`["odd"]`)}
	turn.say(
		chat.Event{Type: chat.EventDebugPrompt, Messages: []provider.Message{{Role: provider.RoleUser, Content: "hi"}},
			EstimatedTokens: 1},
		chat.Event{Type: chat.EventThinking, Content: "hm"}, piece("he"), call, call,
		chat.Event{Type: "hologram"}, chat.Event{Type: chat.EventToolResult, ID: "c", Name: "look", Output: "{}",
			Status: chat.StatusFailed},
		piece("llo"), chat.Event{Type: chat.EventTitle, Title: "Greeting"},
	)
	turn.finish("hello")
	d.send(`{"type":"regenerate"}`)
	turn = agent.next(t)
	d.abort()
	turn.stopped()
	d.ask("there?")
	agent.next(t).finish("still here")
	want := []string{
		"session: v1 false 0",
		`debug: [{"role":"user","content":"hi"}] 1`,
		"thinking: hm", `call: c look {"text":"[\"odd\"]"}`, "result: c look {}", "assistant: hello ",
		"title: Greeting",
		"aborted: ", "assistant: still here ",
	}
	var client v1Client
	for len(client.screen) < len(want) {
		must(t, d.conn.SetReadDeadline(deadline()))
		_, data, err := d.conn.ReadMessage()
		must(t, err)
		must(t, client.show(data))
	}
	for i, got := range client.screen {
		if got != want[i] {
			t.Errorf("line %d: %q, want %q", i, got, want[i])
		}
	}
}

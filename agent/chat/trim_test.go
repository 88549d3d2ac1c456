package chat

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/provider"
)

// randomConversation is anything a store may hold: also one whose oldest messages were forgotten, or whose turns broke
// off.
func randomConversation(rng *rand.Rand) []provider.Message {
	var all []provider.Message
	words := func(n int) string { return strings.Repeat("w", rng.IntN(n)) }
	for range rng.IntN(12) {
		all = append(all, user("u"+words(400)))
		for range rng.IntN(4) {
			var calls []provider.ToolCall
			for i := range rng.IntN(4) {
				calls = append(calls, tool(fmt.Sprint("c", i), "look", "{}"))
			}
			m := assistant(words(300), calls...)
			m.Interrupted = rng.IntN(5) == 0
			m.Thinking = []provider.Thought{{Text: words(50)}}
			all = append(all, m)
			for _, c := range calls {
				if rng.IntN(8) > 0 {
					all = append(all, toolMessage(c, words(4000), false, ""))
				}
			}
		}
	}
	return append(all[rng.IntN(len(all)/2+1):], user("newest"+words(400)))
}

func TestTrimmingKeepsWhatItMust(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 9))
	dropped, shortened := 0, 0
	for range 5000 {
		limit := rng.IntN(6000)
		history := randomConversation(rng)
		for range rng.IntN(3) { // the newest group may have gone on
			calls := []provider.ToolCall{tool("n1", "look", "{}"), tool("n2", "look", "{}")}
			history = append(history, assistant("", calls...),
				toolMessage(calls[0], strings.Repeat("r", rng.IntN(9000)), false, ""),
				toolMessage(calls[1], "short", false, ""))
		}
		whole := wellFormed(history)
		before := slices.Clone(whole)
		got := trim(whole, limit)
		checkWellFormed(t, got)
		if !slices.EqualFunc(before, whole, func(a, b provider.Message) bool { return line(a) == line(b) }) {
			t.Fatal("trimming changed what it was given")
		}
		newest := slices.IndexFunc(got, func(m provider.Message) bool {
			return isUser(m) &&
				strings.HasPrefix(m.Content, "newest")
		})
		if newest < 0 {
			t.Fatal("the newest user message is gone")
		}
		tail := before[len(before)-len(got):]
		for i := range got {
			if got[i].ToolCallID != tail[i].ToolCallID || got[i].Role != tail[i].Role {
				t.Fatal("a message in the middle is gone")
			}
			if got[i].Content == tail[i].Content {
				continue
			}
			shortened++
			if newest != 0 || got[i].Role != provider.RoleTool && !strings.Contains(got[i].Content, "bytes left out") {
				t.Fatalf("%q was changed to %q while there was more to drop", tail[i].Content, got[i].Content)
			}
		}
		if len(got) < len(before) {
			dropped++
			group := len(before) - len(got)
			for group--; !isUser(before[group]); group-- {
			}
			if estimateAll(before[group:]) <= limit {
				t.Fatal("a group that fits was dropped")
			}
		}
		if estimateAll(got) > limit {
			for _, m := range got[newest:] {
				if m.Role == provider.RoleTool && len(m.Content) > 100 || len(m.Content) > leastText || newest != 0 {
					t.Fatalf("too long, and there was more to leave out: %.60q", m.Content)
				}
			}
		}
	}
	if dropped < 500 || shortened < 500 {
		t.Errorf("dropped %d, shortened %d: the test tests nothing", dropped, shortened)
	}
}

func TestLongConversationIsTrimmedInATurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{ContextTokens: 2000})
		for i := range 30 {
			r.model.add(text(fmt.Sprint("answer ", i, strings.Repeat(" x", 300))))
			r.must(fmt.Sprint("question ", i, strings.Repeat(" y", 300)))
		}
		asked := r.model.asked()
		last := asked[len(asked)-1]
		if n := estimateFixed(last) + estimateAll(last.Messages); n > 2000 || n < 1500 {
			t.Errorf("%d tokens sent", n)
		}
		if last.System != "Be kind." || !strings.HasPrefix(last.Messages[len(last.Messages)-1].Content, "question 29") {
			t.Error("the system prompt or the newest message is missing")
		}
		if n := len(r.history()); n != 60 {
			t.Errorf("%d messages are kept: trimming is of requests, not of the conversation", n)
		}
	})
}

// TestOneLongMessageObeysTheBound: whatever is long, no request is longer than it may be, and what was cut says so.
func TestOneLongMessageObeysTheBound(t *testing.T) {
	long := "BEGIN " + strings.Repeat("some words ", 40_000) + " END"
	image := provider.Part{Image: &provider.Image{URL: "https://example.com/a.png"}}
	call := tool("c", "look", `{"text":"`+strings.Repeat("x", 300_000)+`"}`)
	for name, c := range map[string]Completion{
		"a message": {Messages: []provider.Message{user(long)}},
		"one of several": {Messages: []provider.Message{user("hi"), assistant("hello"), user(long), assistant(long),
			user("and now?")}},
		"an answer": {Messages: []provider.Message{user("hi"), assistant(long)}},
		"a result": {Messages: []provider.Message{user("hi"), assistant("", tool("c", "look", "{}")),
			{Role: provider.RoleTool, ToolCallID: "c", ToolName: "look", Content: long}}},
		"arguments": {Messages: []provider.Message{user("hi"), assistant("", call),
			{Role: provider.RoleTool, ToolCallID: "c", Content: "ok"}}},
		"thoughts": {Messages: []provider.Message{user("hi"),
			{Role: provider.RoleAssistant, Content: "a", Thinking: []provider.Thought{{Text: long}}}}},
		"instructions": {System: long, Messages: []provider.Message{user("hi")}},
		"all of it": {System: long, Messages: []provider.Message{user(long), assistant(long, call),
			{Role: provider.RoleTool, ToolCallID: "c", Content: long}}},
		"images": {Messages: []provider.Message{{Role: provider.RoleUser, Content: "see",
			Parts: []provider.Part{{Text: "see"}, image, image}}}},
		"many messages": {Messages: slices.Repeat([]provider.Message{assistant(strings.Repeat("y ", 1000))}, 20)},
	} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, Limits{ContextTokens: 3000}, text("ok"))
			if _, _, _, err := r.complete(c); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			sent := r.model.asked()[0]
			if n := estimateFixed(sent) + estimateAll(sent.Messages); n > 3000 {
				t.Errorf("%s: %d tokens were sent", name, n)
			}
			all := sent.System + lines(sent.Messages)
			for _, m := range sent.Messages {
				for _, c := range m.ToolCalls {
					all += c.Args
				}
			}
			if name != "thoughts" && name != "one of several" && !strings.Contains(all, "left out") &&
				!strings.Contains(all, "left_out") {
				t.Errorf("%s: nothing says that something is missing: %.300s", name, all)
			}
			if name == "a message" && (!strings.Contains(all, "BEGIN") || !strings.Contains(all, "END") ||
				len(all) < 4000) {
				t.Errorf("%s: %d bytes are left: %.60q", name, len(all), all)
			}
		})
	}
	bubble(t, func(t *testing.T) { // in a conversation the gateway keeps, too
		r := newRig(t, Limits{ContextTokens: 3000}, text("ok"))
		r.must(long)
		if sent := r.model.asked()[0]; estimateFixed(sent)+estimateAll(sent.Messages) > 3000 {
			t.Error("too much was sent")
		}
	})
	bubble(t, func(t *testing.T) { // what cannot be cut is refused
		r := newRig(t, Limits{ContextTokens: 3000})
		big := provider.Tool{Name: "big", Description: long}
		_, _, ev, err := r.complete(Completion{Messages: []provider.Message{user("hi")}, Tools: []provider.Tool{big}})
		if e := wantCode(t, err, ev, CodeProvider); !strings.Contains(e.Message, "3000") {
			t.Errorf("message %q", e.Message)
		}
	})
}

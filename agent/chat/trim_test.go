package chat

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/provider"
)

// randomConversation is anything a store may hold: also one whose oldest messages were forgotten, or whose turns broke off.
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
			history = append(history, assistant("", calls...), toolMessage(calls[0], strings.Repeat("r", rng.IntN(9000)), false, ""),
				toolMessage(calls[1], "short", false, ""))
		}
		whole := wellFormed(history)
		before := slices.Clone(whole)
		got := trim(whole, limit)
		checkWellFormed(t, got)
		if !slices.EqualFunc(before, whole, func(a, b provider.Message) bool { return line(a) == line(b) }) {
			t.Fatal("trimming changed what it was given")
		}
		newest := slices.IndexFunc(got, func(m provider.Message) bool { return isUser(m) && strings.HasPrefix(m.Content, "newest") })
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
			if newest != 0 || got[i].Role != provider.RoleTool {
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
				if m.Role == provider.RoleTool && len(m.Content) > 100 || newest != 0 {
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

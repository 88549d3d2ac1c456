package registrytest

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
)

// instant is a lease that lapses before the next request.
const instant = time.Millisecond

var conversationTests = slices.Concat(turnTests, messageTests, trailTests, conversationIndexTests)

var messageTests = []subtest{
	{name: "of an unknown conversation there is nothing", run: func(f *fixture) {
		f.wantConversation("c", registry.Conversation{})
		if n := f.count("c"); n != 0 {
			f.Errorf("%d messages", n)
		}
		if trail := f.trail("c", 10); len(trail) != 0 {
			f.Errorf("trail %q", trail)
		}
		f.wantConversation("c", registry.Conversation{}) // reading creates no conversation
	}},
	{name: "messages stay in order, and are counted", run: func(f *fixture) {
		t := f.begin("c", time.Minute)
		for i, step := range []struct {
			add  []json.RawMessage
			want int
		}{{raw("1"), 1}, {raw("2", "3"), 3}, {nil, 3}, {raw("4"), 4}} {
			if n := f.say(t, step.add...); n != step.want || f.count("c") != step.want {
				f.Errorf("step %d: %d messages, counted %d, want %d", i, n, f.count("c"), step.want)
			}
		}
		f.wantConversation("c", registry.Conversation{Messages: raw("1", "2", "3", "4"), Busy: true})
		f.must(f.store.EndTurn(f.ctx, t))
		f.wantConversation("c", registry.Conversation{Messages: raw("1", "2", "3", "4")})
	}},
	{name: "messages and drafts come back byte for byte", run: func(f *fixture) {
		all := raw(
			`{"text":"\u0000\ud800\udfff \ud83d\ude00 \u2028 \/ \\ \" <&>"}`,
			"{ \"b\" :1,\n\t\"a\": 12345678901234567890.10e+2, \"a\": null }",
			"\"\xff\xfe\xc0\x80 not UTF-8 \u2028 é\"", "\r\n\x00$-1\r\n", `null`, `""`,
		)
		t := f.begin("c", time.Minute)
		f.say(t, all...)
		for _, draft := range all {
			f.must(f.store.SaveDraft(f.ctx, t, draft))
			f.wantConversation("c", registry.Conversation{Messages: all, Draft: draft, Busy: true})
		}
	}},
	{name: "a message of a megabyte is one like any other", run: func(f *fixture) {
		large := json.RawMessage(`"` + strings.Repeat("\xc3\xa9\\u0001\x00", 1<<20/9) + `"`)
		t := f.begin("c", time.Minute)
		f.say(t, large)
		f.say(t, raw("1")...)
		f.must(f.store.SaveDraft(f.ctx, t, large))
		all := append(list(large), raw("1")...)
		f.wantConversation("c", registry.Conversation{Messages: all, Draft: large, Busy: true})
	}},
	{name: "nobody shares memory with the store", run: func(f *fixture) {
		t := f.begin("c", time.Minute)
		said, draft := raw("12", "34"), raw("56")[0]
		f.say(t, said...)
		f.must(f.store.SaveDraft(f.ctx, t, draft))
		got := f.conversation("c")
		for _, bytes := range [][]byte{said[0], draft, got.Messages[1], got.Draft} {
			bytes[0] = 'x'
		}
		f.wantConversation("c", registry.Conversation{Messages: raw("12", "34"), Draft: raw("56")[0], Busy: true})
	}},
	{name: "at the cap the oldest messages go", limits: registry.Limits{HistoryCap: 3}, run: func(f *fixture) {
		t := f.begin("c", time.Minute)
		for i, step := range []struct {
			add, want []json.RawMessage
		}{
			{raw("1", "2"), raw("1", "2")},
			{raw("3", "4"), raw("2", "3", "4")},
			{raw("5"), raw("3", "4", "5")},
			{raw("6", "7", "8", "9", "10"), raw("8", "9", "10")},
			{nil, raw("8", "9", "10")},
		} {
			if n := f.say(t, step.add...); n != len(step.want) || f.count("c") != n {
				f.Errorf("step %d: %d messages, counted %d", i, n, f.count("c"))
			}
			f.wantConversation("c", registry.Conversation{Messages: step.want, Busy: true})
		}
	}},
	{name: "what is too long together goes, oldest first, but never the newest", run: func(f *fixture) {
		const part = registry.MaxHistoryBytes / 4
		message := func(mark string, size int) json.RawMessage {
			return json.RawMessage(mark + strings.Repeat("x", size-len(mark)))
		}
		t := f.begin("c", time.Minute)
		a, b, c, d := message("a", part), message("b", part), message("c", part), message("d", part)
		e, huge := message("e", 1), message("huge", registry.MaxHistoryBytes+1)
		for i, step := range []struct{ add, want []json.RawMessage }{
			{list(a, b, c, d), list(a, b, c, d)}, // exactly at the limit
			{list(e), list(b, c, d, e)},
			{list(a), list(c, d, e, a)},
			{list(huge), list(huge)},
			{list(e), list(e)},
			{list(a, b, c), list(e, a, b, c)},
		} {
			if n := f.say(t, step.add...); n != len(step.want) {
				f.Errorf("step %d: %d messages, want %d", i, n, len(step.want))
			}
			f.wantConversation("c", registry.Conversation{Messages: step.want, Busy: true})
		}
		f.must(f.store.TruncateMessages(f.ctx, t, 2))
		f.say(t, b, c) // truncated messages do not count any more
		f.wantConversation("c", registry.Conversation{Messages: list(e, a, b, c), Busy: true})
		f.must(f.store.TruncateMessages(f.ctx, t, 0))
		f.say(t, a, b, c, d)
		f.wantConversation("c", registry.Conversation{Messages: list(a, b, c, d), Busy: true})
	}},
	{name: "many messages go in at once", limits: registry.Limits{HistoryCap: 12_000}, run: func(f *fixture) {
		t := f.begin("c", time.Minute)
		var all []json.RawMessage
		for i := range 9_500 {
			all = append(all, json.RawMessage(fmt.Sprint(i)))
		}
		if n := f.say(t, all...); n != 9_500 {
			f.Errorf("%d messages", n)
		}
		if n := f.say(t, append(all, raw("last")...)...); n != 12_000 {
			f.Errorf("%d messages at the cap", n)
		}
		want := slices.Concat(all[len(all)-2_499:], all, raw("last"))
		f.wantConversation("c", registry.Conversation{Messages: want, Busy: true})
	}},
	{name: "truncating keeps the oldest messages", run: func(f *fixture) {
		t := f.begin("c", time.Minute)
		f.say(t, raw("1", "2", "3", "4")...)
		for _, step := range []struct {
			keep int
			want []json.RawMessage
		}{
			{math.MaxInt, raw("1", "2", "3", "4")}, {9, raw("1", "2", "3", "4")}, {4, raw("1", "2", "3", "4")},
			{2, raw("1", "2")}, {1, raw("1")}, {0, nil}, {0, nil},
		} {
			f.must(f.store.TruncateMessages(f.ctx, t, step.keep))
			f.wantConversation("c", registry.Conversation{Messages: step.want, Busy: true})
		}
		if n := f.say(t, raw("5")...); n != 1 {
			f.Errorf("%d messages after all had been removed", n)
		}
		f.must(f.store.TruncateMessages(f.ctx, t, -1))
		f.wantConversation("c", registry.Conversation{Busy: true})
	}},
	{name: "the draft is one, until something takes its place", run: func(f *fixture) {
		for what, forget := range map[string]func(registry.Turn) error{
			"appending":         func(t registry.Turn) error { f.say(t, raw("1")...); return nil },
			"appending nothing": func(t registry.Turn) error { return errOf(f.store.AppendMessages(f.ctx, t)) },
			"truncating":        func(t registry.Turn) error { return f.store.TruncateMessages(f.ctx, t, 5) },
			"an empty draft":    func(t registry.Turn) error { return f.store.SaveDraft(f.ctx, t, nil) },
		} {
			session := strings.ReplaceAll(what, " ", "-")
			t := f.begin(session, time.Minute)
			f.must(f.store.SaveDraft(f.ctx, t, raw(`"he"`)[0]))
			f.must(f.store.SaveDraft(f.ctx, t, raw(`"hello"`)[0]))
			f.must(f.store.SetTitle(f.ctx, t, "title"))
			f.must(f.store.RenewTurn(f.ctx, t, time.Minute))
			f.leave(session, "entry", 5)
			if got := string(f.conversation(session).Draft); got != `"hello"` {
				f.Errorf("before %s: draft %s", what, got)
			}
			f.must(forget(t))
			if got := f.conversation(session).Draft; got != nil {
				f.Errorf("after %s: draft %q", what, got)
			}
		}
	}},
	{name: "the draft outlives the end of its turn", run: func(f *fixture) {
		t := f.begin("c", time.Minute)
		f.say(t, raw("1")...)
		f.must(f.store.SaveDraft(f.ctx, t, raw("2")[0]))
		f.must(f.store.EndTurn(f.ctx, t)) // after a failed append
		f.wantConversation("c", registry.Conversation{Messages: raw("1"), Draft: raw("2")[0]})
		next := f.begin("c", time.Minute)
		f.say(next, raw("2")...)
		f.wantConversation("c", registry.Conversation{Messages: raw("1", "2"), Busy: true})
	}},
	{name: "what was appended last is not added again", limits: registry.Limits{HistoryCap: 5}, run: func(f *fixture) {
		t := f.begin("c", time.Minute)
		for i, step := range []struct{ add, want []json.RawMessage }{
			{raw("1"), raw("1")},
			{raw("1"), raw("1")},
			{raw("1", "2"), raw("1", "1", "2")},
			{raw("1", "2"), raw("1", "1", "2")},
			{raw("2"), raw("1", "1", "2", "2")}, // other messages than the last time
			{raw("12"), raw("1", "1", "2", "2", "12")},
			{raw("1", "2"), raw("2", "2", "12", "1", "2")},
			{raw("1", "2"), raw("2", "2", "12", "1", "2")},
			{raw("a", "b", "c", "d", "e", "f"), raw("b", "c", "d", "e", "f")},
			{raw("a", "b", "c", "d", "e", "f"), raw("b", "c", "d", "e", "f")}, // though not all of them are stored
		} {
			f.must(f.store.SaveDraft(f.ctx, t, raw("draft")[0]))
			if n := f.say(t, step.add...); n != len(step.want) {
				f.Errorf("step %d: %d messages", i, n)
			}
			f.wantConversation("c", registry.Conversation{Messages: step.want, Busy: true})
		}
		f.must(f.store.TruncateMessages(f.ctx, t, 0))
		f.say(t, raw("a", "b", "c", "d", "e", "f")...)
		f.wantConversation("c", registry.Conversation{Messages: raw("b", "c", "d", "e", "f"), Busy: true})
		f.must(f.store.TruncateMessages(f.ctx, t, 0))
		f.say(t, raw("1")...)
		f.must(f.store.EndTurn(f.ctx, t))
		f.say(f.begin("c", time.Minute), raw("1")...) // another turn appends the same
		f.wantConversation("c", registry.Conversation{Messages: raw("1", "1"), Busy: true})
	}},
	{name: "the title is the last one given", run: func(f *fixture) {
		t := f.begin("c", time.Minute)
		for _, title := range []string{"first", "Zwölf <&> \U0001f600\x00", ""} {
			f.must(f.store.SetTitle(f.ctx, t, title))
			f.wantConversation("c", registry.Conversation{Title: title, Busy: true})
		}
		f.must(f.store.SetTitle(f.ctx, t, "kept"))
		f.must(f.store.EndTurn(f.ctx, t))
		f.wantConversation("c", registry.Conversation{Title: "kept"})
	}},
	{name: "tenants and sessions have conversations of their own", run: func(f *fixture) {
		other := registry.Key{Tenant: f.tenant + "x", Session: "c"}
		mine := f.begin("c", time.Minute)
		theirs, err := f.store.BeginTurn(f.ctx, other, time.Minute) // not busy
		f.must(err)
		f.begin("d", time.Minute)
		f.say(mine, raw("1")...)
		f.must(f.store.SetTitle(f.ctx, mine, "mine"))
		f.leave("c", "mine", 5)
		got, err := f.store.Conversation(f.ctx, other)
		if f.must(err); !reflect.DeepEqual(got, registry.Conversation{Busy: true}) {
			f.Errorf("of another tenant: %+v", got)
		}
		if trail, err := f.store.Trail(f.ctx, other, 5); err != nil || len(trail) != 0 {
			f.Errorf("of another tenant: %q, %v", trail, err)
		}
		f.wantConversation("d", registry.Conversation{Busy: true})
		theirs.Key, mine.Key = mine.Key, theirs.Key // a turn is valid only for its own conversation
		f.refused("another conversation's turn", mine)
		f.refused("another conversation's turn", theirs)
	}},
	{name: "a conversation outlives the session", limits: registry.Limits{SessionTTL: briefly}, run: func(f *fixture) {
		pod := f.pod("a")
		s := f.claim("c", pod)
		t := f.begin("c", time.Minute)
		f.say(t, raw("1")...)
		f.leave("c", "entry", 5)
		want := registry.Conversation{Messages: raw("1"), Busy: true}
		f.must(errOf(f.store.Release(f.ctx, s, 0)))
		f.wantConversation("c", want)
		f.claim("c", pod)
		f.wantConversation("c", want)
		f.eventually("the session has expired", func() bool {
			_, err := f.store.Entry(f.ctx, f.key("c"))
			return err != nil
		})
		f.wantConversation("c", want)
		if trail := f.trail("c", 5); len(trail) != 1 {
			f.Errorf("trail %q", trail)
		}
		f.say(t, raw("2")...)
	}},
	{name: "an idle conversation is forgotten", limits: registry.Limits{HistoryTTL: briefly}, run: func(f *fixture) {
		old := f.begin("c", time.Minute) // keeps it alive
		f.say(old, raw("1")...)
		f.must(f.store.SetTitle(f.ctx, old, "title"))
		f.must(f.store.SaveDraft(f.ctx, old, raw("2")[0]))
		f.leave("c", "entry", 5)
		f.must(f.store.RenewTurn(f.ctx, old, instant))
		f.eventually("all of it is forgotten", func() bool {
			return reflect.DeepEqual(f.conversation("c"), registry.Conversation{}) &&
				f.count("c") == 0 && len(f.trail("c", 5)) == 0
		})
		f.refused("a forgotten turn", old)
		if next := f.begin("c", time.Minute); next.Fence <= old.Fence {
			f.Errorf("fence %d after %d", next.Fence, old.Fence)
		}
		f.refused("a forgotten turn", old)
	}},
	{name: "a turn keeps its conversation", limits: registry.Limits{HistoryTTL: briefly}, run: func(f *fixture) {
		t := f.begin("c", time.Minute)
		f.say(t, raw("1")...)
		f.leave("d", "entry", 5)
		f.eventually("an older one is forgotten", func() bool { return len(f.trail("d", 5)) == 0 })
		f.wantConversation("c", registry.Conversation{Messages: raw("1"), Busy: true})
		f.must(f.store.EndTurn(f.ctx, t))
		f.eventually("it is forgotten after the turn", func() bool { return f.count("c") == 0 })
	}},
}

package registrytest

import (
	"fmt"
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
)

var conversationIndexTests = []subtest{
	{name: "a tenant without conversations has no list of them", run: func(f *fixture) {
		if v := f.conversationsVersion(); v != "" {
			f.Errorf("version %q", v)
		}
		f.wantListed(registry.ConversationQuery{})
		f.wantRunning()
		if info := f.describe("c"); info != (registry.ConversationInfo{Key: f.key("c")}) {
			f.Errorf("%+v", info)
		}
	}},
	{name: "a conversation is described from its first message on", run: func(f *fixture) {
		t := f.begin("c", time.Minute)
		f.must(f.store.SetOwner(f.ctx, t, registry.Owner{UserID: "ann", DeviceID: "phone", Bound: true}))
		f.must(f.store.SetOwner(f.ctx, t, registry.Owner{UserID: "bob"})) // the owner is already set
		f.wantListed(registry.ConversationQuery{})
		f.say(t, raw("1", "2")...)
		first := f.describe("c")
		f.say(t, raw("3")...)
		f.must(f.store.SetTitle(f.ctx, t, "What it began with"))
		info := f.describe("c")
		if first.Messages != 2 || info.Messages != 3 || first.Created.IsZero() || !info.Created.Equal(first.Created) ||
			info.Active.Before(first.Active) || info.Title != "What it began with" || info.Named ||
			info.Owner != (registry.Owner{UserID: "ann", DeviceID: "phone", Bound: true}) {
			f.Errorf("first %+v\nthen  %+v", first, info)
		}
		if since := info.Active.Sub(info.Turn); since <= -time.Millisecond || since > time.Minute {
			f.Errorf("the turn began at %v, the last message came at %v", info.Turn, info.Active)
		}
		f.must(f.store.EndTurn(f.ctx, t))
		if c := f.conversation("c"); c.Owner != info.Owner {
			f.Errorf("owner %+v", c.Owner)
		}
		if info := f.describe("c"); !info.Turn.IsZero() {
			f.Errorf("a turn began at %v", info.Turn)
		}
		f.wantListed(registry.ConversationQuery{}, "c")
	}},
	{name: "conversations are listed in pages, the last used first", run: func(f *fixture) {
		for _, session := range []string{"a", "b", "c", "d", "e", "a"} {
			f.talk(session)
		}
		f.talkIn("elsewhere", "x")
		want := []string{"a", "e", "d", "c", "b"}
		f.wantListed(registry.ConversationQuery{}, want...)
		for limit := 1; limit <= 6; limit++ {
			f.wantListed(registry.ConversationQuery{Limit: limit}, want...)
		}
	}},
	{name: "of those that are offline connected sessions are left out", run: func(f *fixture) {
		pod := f.pod("p1")
		for _, session := range []string{"a", "b", "c"} {
			f.talk(session)
		}
		b := f.claim("b", pod)
		f.wantListed(registry.ConversationQuery{Offline: true}, "c", "a")
		f.wantListed(registry.ConversationQuery{Offline: true, Limit: 1}, "c", "a")
		f.wantListed(registry.ConversationQuery{}, "c", "b", "a")
		f.must(errOf(f.store.Release(f.ctx, b, 0)))
		f.wantListed(registry.ConversationQuery{Offline: true}, "c", "b", "a")
	}},
	{name: "running conversations are those with a turn, the longest running first", run: func(f *fixture) {
		var turns []registry.Turn
		for _, session := range []string{"b", "a", "c"} {
			t := f.begin(session, time.Minute)
			f.say(t, raw("1")...)
			turns = append(turns, t)
		}
		f.talk("idle")
		f.say(f.begin("lapsed", instant), raw("1")...)
		f.eventually("the lease has lapsed", func() bool { return f.describe("lapsed").Turn.IsZero() })
		f.wantRunning("b", "a", "c")
		f.must(f.store.EndTurn(f.ctx, turns[1]))
		f.wantRunning("b", "c")
	}},
	{name: "a name a person gave stays", run: func(f *fixture) {
		f.must(f.store.NameConversation(f.ctx, f.key("c"), "Mine"))
		t := f.begin("c", time.Minute)
		f.say(t, raw("1")...)
		f.must(f.store.SetTitle(f.ctx, t, "Somebody else's"))
		f.must(f.store.EndTurn(f.ctx, t))
		if info := f.describe("c"); info.Title != "Mine" || !info.Named || f.conversation("c").Title != "Mine" {
			f.Errorf("%+v", info)
		}
		f.must(f.store.NameConversation(f.ctx, f.key("c"), "Another"))
		if info := f.describe("c"); info.Title != "Another" || info.Messages != 1 {
			f.Errorf("%+v", info)
		}
	}},
	{name: "what is erased is gone, and its turn is lost", run: func(f *fixture) {
		f.talk("stays")
		t := f.begin("c", time.Minute)
		f.must(f.store.SetOwner(f.ctx, t, registry.Owner{UserID: "ann"}))
		f.say(t, raw("1")...)
		f.must(f.store.SaveDraft(f.ctx, t, raw("2")[0]))
		f.leave("c", "entry", 5)
		for _, want := range []bool{true, false} {
			erased, err := f.store.EraseConversation(f.ctx, f.key("c"))
			if f.must(err); erased != want {
				f.Errorf("erased: %v", erased)
			}
			f.wantConversation("c", registry.Conversation{})
			f.wantListed(registry.ConversationQuery{}, "stays")
			f.wantRunning()
		}
		if trail := f.trail("c", 5); len(trail) != 0 {
			f.Errorf("trail %q", trail)
		}
		f.refused("a turn of an erased conversation", t)
		time.Sleep(2 * time.Millisecond)
		again := f.begin("c", time.Minute)
		if again.Fence <= t.Fence {
			f.Errorf("fence %d, then %d", t.Fence, again.Fence)
		}
		f.say(again, raw("3")...)
		f.wantConversation("c", registry.Conversation{Messages: raw("3"), Busy: true})
		f.wantListed(registry.ConversationQuery{}, "c", "stays")
	}},
	{name: "the version changes with what lists show, and only then", run: func(f *fixture) {
		f.talk("other")
		seen := map[string]bool{f.conversationsVersion(): true}
		changes := func(what string, want bool, do func() error) {
			f.Helper()
			f.must(do())
			if v := f.conversationsVersion(); seen[v] == want {
				f.Errorf("%s: changed is %v", what, !want)
			} else {
				seen[v] = true
			}
		}
		var t registry.Turn
		key := f.key("c")
		changes("begin", false, func() (err error) { t, err = f.store.BeginTurn(f.ctx, key, time.Minute); return err })
		changes("append", true, func() error { return errOf(f.store.AppendMessages(f.ctx, t, raw("1", "2")...)) })
		changes("draft", false, func() error { return f.store.SaveDraft(f.ctx, t, raw("2")[0]) })
		changes("renew", false, func() error { return f.store.RenewTurn(f.ctx, t, time.Minute) })
		changes("truncate", true, func() error { return f.store.TruncateMessages(f.ctx, t, 1) })
		changes("title", true, func() error { return f.store.SetTitle(f.ctx, t, "x") })
		changes("end", false, func() error { return f.store.EndTurn(f.ctx, t) })
		changes("name", true, func() error { return f.store.NameConversation(f.ctx, key, "y") })
		changes("erase", true, func() error { return errOf(f.store.EraseConversation(f.ctx, key)) })
	}},
	{name: "forgotten conversations leave the lists",
		limits: registry.Limits{HistoryTTL: 500 * time.Millisecond}, run: func(f *fixture) {
			f.talk("c")
			before := f.conversationsVersion()
			f.eventually("it is not listed", func() bool { return len(f.listed(registry.ConversationQuery{})) == 0 })
			f.must(errOf(f.store.Sweep(f.ctx)))
			if v := f.conversationsVersion(); v == before {
				f.Errorf("still version %q", v)
			}
		}},
}

// talk adds a message in a turn. No two turns are in the same millisecond.
func (f *fixture) talk(session string) {
	f.Helper()
	f.talkIn(f.key(session).Tenant, session)
}

func (f *fixture) talkIn(tenant, session string) {
	f.Helper()
	time.Sleep(2 * time.Millisecond)
	t, err := f.store.BeginTurn(f.ctx, registry.Key{Tenant: tenant, Session: session}, time.Minute)
	f.must(err)
	f.say(t, raw(fmt.Sprintf("%d", t.Fence))...)
	f.must(f.store.EndTurn(f.ctx, t))
}

func (f *fixture) describe(session string) registry.ConversationInfo {
	f.Helper()
	infos, err := f.store.DescribeConversations(f.ctx, f.key(session))
	if f.must(err); len(infos) != 1 {
		f.Fatalf("%d descriptions", len(infos))
	}
	return infos[0]
}

func (f *fixture) conversationsVersion() string {
	f.Helper()
	v, err := f.store.ConversationsVersion(f.ctx, f.key("").Tenant)
	f.must(err)
	return v
}

// listed returns the sessions of all pages.
func (f *fixture) listed(q registry.ConversationQuery) []string {
	f.Helper()
	q.Tenant = f.key("").Tenant
	var sessions []string
	for {
		page, next, err := f.store.ListConversations(f.ctx, q)
		f.must(err)
		for _, c := range page {
			sessions = append(sessions, c.Key.Session)
		}
		if next == nil {
			return sessions
		}
		q.After = *next
	}
}

func (f *fixture) wantListed(q registry.ConversationQuery, want ...string) {
	f.Helper()
	if got := f.listed(q); !slices.Equal(got, want) {
		f.Errorf("%+v lists %q, want %q", q, got, want)
	}
}

func (f *fixture) wantRunning(want ...string) {
	f.Helper()
	var got []string
	for after, pages := (registry.ConversationCursor{}), 0; ; pages++ {
		running, next, err := f.store.RunningConversations(f.ctx, f.key("").Tenant, after, 1)
		f.must(err)
		for _, c := range running {
			if got = append(got, c.Key.Session); c.Turn.IsZero() {
				f.Errorf("%s runs since never", c.Key.Session)
			}
		}
		if next == nil {
			break
		}
		if after = *next; pages > 100 {
			f.Fatal("the list does not end")
		}
	}
	if !slices.Equal(got, want) {
		f.Errorf("running %q, want %q", got, want)
	}
}

package registrytest

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/farhand/farhand/registry"
)

var turnTests = []subtest{
	{name: "one turn at a time, in the whole fleet", run: func(f *fixture) {
		first := f.begin("c", time.Minute)
		f.taken("c", 0, time.Minute)
		f.wantConversation("c", registry.Conversation{Busy: true})
		f.must(f.store.EndTurn(f.ctx, first))
		f.wantConversation("c", registry.Conversation{})
		second := f.begin("c", time.Minute)
		if first.Key != f.key("c") || second.Fence <= first.Fence {
			f.Errorf("turn %+v, then %+v", first, second)
		}
	}},
	{name: "of those that begin at once one wins", run: func(f *fixture) {
		const contenders = 50
		for round := range 3 {
			session := fmt.Sprintf("c%d", round)
			turns := make(chan registry.Turn, contenders)
			together(contenders, func(i int) {
				t, err := f.store.BeginTurn(f.ctx, f.key(session), time.Minute)
				if err == nil {
					turns <- t
					return
				}
				after := registry.AsError(err).RetryAfter
				if !errors.Is(err, registry.CodeBusy) || after <= 0 || after > time.Minute {
					f.Errorf("contender %d: %v", i, err)
				}
			})
			if len(turns) != 1 {
				f.Fatalf("%d winners", len(turns))
			}
			f.say(<-turns, raw("1")...)
		}
	}},
	{name: "turns follow each other without losing anything", run: func(f *fixture) {
		const writers, each = 8, 5
		together(writers, func(int) {
			for range each {
				f.takeTurn("c", func(t registry.Turn) {
					// Reading and writing are two steps: only the turn keeps other writers from coming in between.
					n := f.count("c")
					f.say(t, json.RawMessage(fmt.Sprintf("[%d,%d]", n, t.Fence)))
				})
			}
		})
		var fence int64
		for i, message := range f.conversation("c").Messages {
			var pair [2]int64
			if err := json.Unmarshal(message, &pair); err != nil || pair[0] != int64(i) || pair[1] <= fence {
				f.Errorf("message %d is %s, behind fence %d: %v", i, message, fence, err)
			}
			fence = pair[1]
		}
		if n := f.count("c"); n != writers*each {
			f.Errorf("%d messages", n)
		}
	}},
	{name: "renewing counts from now", run: func(f *fixture) {
		t := f.begin("c", time.Minute)
		f.must(f.store.RenewTurn(f.ctx, t, time.Hour))
		f.taken("c", time.Minute, time.Hour)
		f.must(f.store.EndTurn(f.ctx, t))
		f.begin("c", time.Minute)
	}},
	{name: "a lapsed lease is no end while nobody else begins", run: func(f *fixture) {
		t := f.begin("c", instant)
		f.eventually("the lease has lapsed", func() bool { return !f.conversation("c").Busy })
		f.say(t, raw("1")...)
		f.must(f.store.SaveDraft(f.ctx, t, raw("2")[0]))
		f.must(f.store.SetTitle(f.ctx, t, "title"))
		f.wantConversation("c", registry.Conversation{Messages: raw("1"), Draft: raw("2")[0], Title: "title"})
		f.must(f.store.TruncateMessages(f.ctx, t, 0))
		f.must(f.store.RenewTurn(f.ctx, t, time.Minute))
		f.wantConversation("c", registry.Conversation{Title: "title", Busy: true})
		f.taken("c", 0, time.Minute)
		f.must(f.store.EndTurn(f.ctx, t))
	}},
	{name: "a replaced turn can write nothing", run: func(f *fixture) {
		old := f.begin("c", instant)
		f.say(old, raw("1")...)
		f.must(f.store.SaveDraft(f.ctx, old, raw(`"half a sen"`)[0]))
		current := f.inherit("c")
		// The draft is there for the next turn.
		want := registry.Conversation{Messages: raw("1"), Draft: raw(`"half a sen"`)[0], Busy: true}
		f.wantConversation("c", want)
		if current.Fence <= old.Fence {
			f.Errorf("fence %d after %d", current.Fence, old.Fence)
		}
		f.refused("a replaced turn", old)
		f.wantConversation("c", want)
		f.taken("c", 0, time.Minute) // the lease is as long as it was
		f.say(current, raw("2")...)
		f.must(f.store.EndTurn(f.ctx, current))
		f.refused("a replaced turn", old) // also after the turn has ended
		f.wantConversation("c", registry.Conversation{Messages: raw("1", "2")})
	}},
	{name: "an ended turn can write nothing", run: func(f *fixture) {
		t := f.begin("c", time.Minute)
		f.say(t, raw("1")...)
		f.must(f.store.EndTurn(f.ctx, t))
		f.refused("an ended turn", t)
		f.refused("no turn", registry.Turn{Key: f.key("c")})
		f.refused("a turn of the future", registry.Turn{Key: f.key("c"), Fence: t.Fence + 1})
		f.refused("a turn of an unknown conversation", registry.Turn{Key: f.key("d"), Fence: t.Fence})
		f.refused("no turn of an unknown conversation", registry.Turn{Key: f.key("d")})
		f.wantConversation("c", registry.Conversation{Messages: raw("1")})
		f.wantConversation("d", registry.Conversation{})
	}},
	{name: "fences grow through ends and lapses", run: func(f *fixture) {
		var last int64
		for i := range 20 {
			t := f.inherit("c")
			if t.Fence <= last {
				f.Fatalf("turn %d: fence %d after %d", i, t.Fence, last)
			}
			last = t.Fence
			if i%2 == 0 {
				f.must(f.store.EndTurn(f.ctx, t))
			} else {
				f.must(f.store.RenewTurn(f.ctx, t, instant))
			}
		}
	}},
}

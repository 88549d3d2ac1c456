package redisstore

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

// newerCase is a kind of stored value: a test writes one, gives it version 99, and uses it.
type newerCase struct {
	kind  redisconn.Form
	write func(f *newerFixture) (key string)
	use   map[string]func(f *newerFixture) error
	quiet []string // uses that leave the value out instead of failing
}

// newerFixture is what the cases share.
type newerFixture struct {
	*testing.T
	s    *Store
	ctx  context.Context
	sess registry.Session
	turn registry.Turn
}

func (f *newerFixture) do(args ...any) {
	f.Helper()
	if _, err := f.s.conn.Do(f.ctx, args...); err != nil {
		f.Fatal(err)
	}
}

// prefix puts the version before a text.
func (f *newerFixture) prefix(key string) string {
	c, err := f.s.conn.Do(f.ctx, "GET", key)
	text, ok := c.Text()
	if err != nil || !ok {
		f.Fatalf("%s: %v", key, err)
	}
	f.do("SET", key, "v99 "+text, "KEEPTTL")
	return key
}

// append adds an entry of version 99 to a stream.
func (f *newerFixture) append(key string) string {
	f.do("XADD", key, "*", streamField, "?", "v", "99")
	return key
}

func newerCases() []newerCase {
	key := registry.Key{Tenant: tenant, Session: "s"}
	owner := registry.ContinuationOwner{Tenant: tenant, User: "u"}
	space := documents.Space{Tenant: tenant, Kind: "grants"}
	place := registry.PlaceKey{Tenant: tenant, Session: "s"}
	record := registry.Record{Tenant: tenant, CallID: "c", State: registry.StateSucceeded, TimeoutMS: 1000}
	listing := func(f *newerFixture) error {
		if got := listed(f, f.s, registry.Query{}); got != "" {
			f.Errorf("listed %s", got)
		}
		return nil
	}
	return []newerCase{
		{kind: redisconn.FormSession, write: func(f *newerFixture) string {
			f.do("HSET", sessionKey(key), "v", "99")
			return sessionKey(key)
		}, use: map[string]func(f *newerFixture) error{
			"read": func(f *newerFixture) error { _, err := f.s.Entry(f.ctx, key); return err },
			"list": listing,
			"sweep": func(f *newerFixture) error {
				lapse(f.T, f.s, "p")
				dead, err := f.s.Sweep(f.ctx)
				if len(dead) > 0 {
					f.Errorf("swept %v", dead)
				}
				return err
			},
			"claim": func(f *newerFixture) error {
				_, err := f.s.Claim(f.ctx, registry.Session{Key: key, Pod: "q", Generation: registry.AnyHolder,
					UserID: "user"})
				return err
			},
			"release": func(f *newerFixture) error {
				_, err := f.s.Release(f.ctx, f.sess, time.Second)
				return err
			},
			"update": func(f *newerFixture) error { return f.s.Update(f.ctx, f.sess) },
			"restore": func(f *newerFixture) error {
				_,
					err := f.s.Restore(f.ctx, registry.Entry{Session: f.sess})
				return err
			},
			"tools": func(f *newerFixture) error { return f.s.SetTools(f.ctx, f.sess, nil) },
		}, quiet: []string{"list", "sweep"}},
		{kind: redisconn.FormToolSet, write: func(f *newerFixture) string {
			return f.prefix(setKey(tenant, newToolSet([]registry.ToolSpec{spec(f, "camera", "x")}).hash))
		}, use: map[string]func(f *newerFixture) error{"list": withoutTools}, quiet: []string{"list"}},
		{kind: redisconn.FormTool, write: func(f *newerFixture) string {
			return f.prefix(specKey(tenant, spec(f, "camera", "x").Hash()))
		}, use: map[string]func(f *newerFixture) error{"list": withoutTools}, quiet: []string{"list"}},
		{kind: redisconn.FormCall, write: func(f *newerFixture) string {
			if err := f.s.KeepCalls(f.ctx, []registry.Record{record}); err != nil {
				f.Fatal(err)
			}
			f.do("HSET", callKey(tenant, "c"), "v", "99")
			return callKey(tenant, "c")
		}, use: map[string]func(f *newerFixture) error{
			"read":   func(f *newerFixture) error { _, err := f.s.ReadCall(f.ctx, tenant, "c"); return err },
			"create": func(f *newerFixture) error { _, _, err := f.s.CreateCall(f.ctx, record); return err },
			"move": func(f *newerFixture) error {
				_, err := f.s.MoveCall(f.ctx, tenant, "c", registry.EventCancel, registry.Change{})
				return err
			},
			"keep": func(f *newerFixture) error { return f.s.KeepCalls(f.ctx, []registry.Record{record}) },
		}, quiet: []string{"keep"}},
		{kind: redisconn.FormCallEvent, write: func(f *newerFixture) string {
			return f.append(callEventsKey(tenant, "d"))
		}, use: map[string]func(f *newerFixture) error{"list": func(f *newerFixture) error {
			events, err := f.s.CallEvents(f.ctx, tenant, "d", "", 10)
			if len(events) > 0 {
				f.Errorf("%v", events)
			}
			return err
		}}, quiet: []string{"list"}},
		{kind: redisconn.FormConversation, write: func(f *newerFixture) string {
			meta := chatKeys(key)[1]
			f.do("HSET", meta, "v", "99")
			return meta
		}, use: map[string]func(f *newerFixture) error{
			"read":     func(f *newerFixture) error { _, err := f.s.Conversation(f.ctx, key); return err },
			"describe": func(f *newerFixture) error { _, err := f.s.DescribeConversations(f.ctx, key); return err },
			"begin":    func(f *newerFixture) error { _, err := f.s.BeginTurn(f.ctx, key, time.Second); return err },
			"append": func(f *newerFixture) error {
				_, err := f.s.AppendMessages(f.ctx, f.turn, json.RawMessage(`{}`))
				return err
			},
			"erase": func(f *newerFixture) error { _, err := f.s.EraseConversation(f.ctx, key); return err },
			"list": func(f *newerFixture) error {
				infos, _, err := f.s.ListConversations(f.ctx, registry.ConversationQuery{Tenant: tenant})
				if len(infos) > 0 {
					f.Errorf("%v", infos)
				}
				return err
			},
		}, quiet: []string{"list"}},
		{kind: redisconn.FormContinuation, write: func(f *newerFixture) string {
			if err := f.s.KeepContinuation(f.ctx, owner, "i", []byte("v99 ?"), time.Minute); err != nil {
				f.Fatal(err)
			}
			return continuationKeys(owner)[0]
		}, use: map[string]func(f *newerFixture) error{
			"read": func(f *newerFixture) error { _, err := f.s.Continuations(f.ctx, owner, 100, "i"); return err },
			"keep": func(f *newerFixture) error {
				return f.s.KeepContinuation(f.ctx, owner, "i", []byte("{}"), time.Minute)
			},
		}},
		{kind: redisconn.FormPlace, write: func(f *newerFixture) string {
			f.do("HSET", placeKey(place), "v", "99", "generation", "1", "pod", "p", "epoch", "1")
			return placeKey(place)
		}, use: map[string]func(f *newerFixture) error{
			"claim": func(f *newerFixture) error {
				_, err := f.s.conn.Eval(f.ctx, scriptPlaceClaim, []string{placeKey(place)}, 1000, "q", "files", 0,
					"1", 0, "1", "1")
				return err
			},
			"refresh": func(f *newerFixture) error {
				_, err := f.s.conn.Eval(f.ctx, scriptPlaceRefresh, []string{placeKey(place)}, 1000, "p", "1", "1")
				return err
			},
			"release": func(f *newerFixture) error {
				_, err := f.s.conn.Eval(f.ctx, scriptPlaceRelease, []string{placeKey(place)}, "p", "1")
				return err
			},
			"erase": func(f *newerFixture) error { _, err := f.s.EraseConversation(f.ctx, key); return err },
		}},
		{kind: redisconn.FormAudit, write: func(f *newerFixture) string {
			return f.append(auditKeys(tenant)[0])
		}, use: map[string]func(f *newerFixture) error{"list": func(f *newerFixture) error {
			page, _, err := f.s.ReadAudit(f.ctx, registry.AuditQuery{Tenant: tenant})
			if len(page) > 0 {
				f.Errorf("%v", page)
			}
			return err
		}}, quiet: []string{"list"}},
		{kind: redisconn.FormUsage, write: func(f *newerFixture) string {
			f.do("HSET", usageKey(tenant, "2026-01-01"), "v", "99", "?", "?")
			return usageKey(tenant, "2026-01-01")
		}, use: map[string]func(f *newerFixture) error{
			"read": func(f *newerFixture) error { _, err := f.s.ReadUsage(f.ctx, tenant, "2026-01-01"); return err },
			"add": func(f *newerFixture) error {
				return f.s.AddUsage(f.ctx, []registry.UsageRow{{Tenant: tenant, Day: "2026-01-01", Tool: "t"}})
			},
		}, quiet: []string{"add"}},
		{kind: redisconn.FormActivity, write: func(f *newerFixture) string {
			return f.append(activityKey(tenant))
		}, use: map[string]func(f *newerFixture) error{"list": func(f *newerFixture) error {
			found, err := f.s.LastActivity(f.ctx, tenant, "", 10)
			if len(found) > 0 {
				f.Errorf("%v", found)
			}
			return err
		}}, quiet: []string{"list"}},
		{kind: redisconn.FormChange, write: func(f *newerFixture) string {
			f.do("XADD", changesKey, "*", "q", "1", "t", tenant, "v", "99")
			return changesKey
		}, use: map[string]func(f *newerFixture) error{"list": func(f *newerFixture) error {
			page, err := f.s.Changes(f.ctx, registry.FeedID{}, 10)
			if len(page.Changes) != 1 || page.Changes[0].Seq != 0 { // so the reader notices that it missed something
				f.Errorf("%+v", page)
			}
			return err
		}}, quiet: []string{"list"}},
		{kind: redisconn.FormDocument, write: func(f *newerFixture) string {
			docs := f.s.Documents()
			must[documents.Written](f)(documents.Commit(f.ctx, docs, space,
				documents.Put("d", []byte("{}"), time.Minute)))
			f.do("HSET", documentKey(space, "d"), "f", "99")
			return documentKey(space, "d")
		}, use: map[string]func(f *newerFixture) error{
			"read": func(f *newerFixture) error {
				found, err := f.s.Documents().Read(f.ctx, space.Ref("d"))
				if err == nil {
					_, err = documents.Decode[int](found[0], nil)
				}
				return err
			},
			"put":    newerWrite(space, documents.Put("d", []byte("{}"), time.Minute)),
			"delete": newerWrite(space, documents.Put("e", nil, time.Minute), documents.Delete("d")),
			"extend": newerWrite(space, documents.Extend("d", time.Hour)),
		}},
	}
}

func newerWrite(space documents.Space, steps ...documents.Step) func(f *newerFixture) error {
	return func(f *newerFixture) error {
		_, err := documents.Commit(f.ctx, f.s.Documents(), space, steps...)
		return err
	}
}

// withoutTools reads the session, and expects that its tool is left out.
func withoutTools(f *newerFixture) error {
	e, err := f.s.Entry(f.ctx, f.sess.Key)
	if len(e.Tools) > 0 {
		f.Errorf("%v", e.Tools)
	}
	return err
}

// TestWhatANewerReleaseWroteIsRefusedAndStays uses a value of version 99 of each kind in every way. Nothing changes it;
// uses fail with a text that says what to do, or leave it out, and all are counted and logged.
func TestWhatANewerReleaseWroteIsRefusedAndStays(t *testing.T) {
	url := redistest.Single(t)
	var kinds []string
	for _, c := range newerCases() {
		kinds = append(kinds, string(c.kind))
		for _, name := range slices.Sorted(maps.Keys(c.use)) {
			t.Run(string(c.kind)+"/"+name, func(t *testing.T) { c.test(t, url, name) })
		}
	}
	kinds = append(kinds, string(redisconn.FormMessage)) // TestMessagesNobodyUnderstands of the bus
	if !slices.Equal(kinds, Forms()) {
		t.Errorf("tested %v of %v", kinds, Forms())
	}
}

func (c newerCase) test(t *testing.T, url, name string) {
	var log bytes.Buffer
	s := storeOn(t, Options{URL: url, Log: slog.New(slog.NewTextHandler(&log, nil))})
	f := &newerFixture{T: t, s: s, ctx: t.Context()}
	f.do("FLUSHALL")
	heartbeat(t, s, "p", "q")
	f.sess = claim(t, s, "s", "p")
	putTools(t, s, f.sess, spec(t, "camera", "x"))
	f.turn = must[registry.Turn](t)(s.BeginTurn(f.ctx, f.sess.Key, time.Minute))
	must[int](t)(s.AppendMessages(f.ctx, f.turn, json.RawMessage(`{}`)))
	s = storeOn(t, Options{URL: url, Log: slog.New(slog.NewTextHandler(&log, nil))}) // remembers nothing
	f.s = s
	key := c.write(f)
	before, _ := keyspace(t, s.conn)
	switch err := c.use[name](f); {
	case slices.Contains(c.quiet, name):
		if err != nil {
			t.Error(err)
		}
	case !registry.IsNewer(err) || registry.AsError(err).Code != registry.CodeStoreUnavailable ||
		!strings.Contains(registry.AsError(err).Message, "newer release"):
		t.Errorf("error %v", err)
	}
	after, _ := keyspace(t, s.conn)
	if before[key] == "" || after[key] != before[key] {
		t.Error("the value was changed")
	}
	for key := range before {
		if _, ok := after[key]; !ok {
			t.Errorf("%s was removed", key)
		}
	}
	if counts := (&Conn{conn: s.conn}).Refused(); counts[string(c.kind)] == 0 {
		t.Errorf("counted %v", counts)
	}
	if n := strings.Count(log.String(), "kind="+string(c.kind)+" version=99"); n != 1 {
		t.Errorf("logged %d times: %s", n, log.String())
	}
}

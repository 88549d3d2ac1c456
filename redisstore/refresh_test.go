package redisstore

import (
	"context"
	"testing"

	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
)

// TestRefreshNoticesWhatWasLost takes one thing away from the store at a time, as a failover or a failed write
// would, and expects the session to be reported, restored and whole again.
func TestRefreshNoticesWhatWasLost(t *testing.T) {
	ctx := context.Background()
	for name, lose := range map[string]func(*testing.T, *Store, registry.Entry){
		"nothing": func(*testing.T, *Store, registry.Entry) {},
		"session hash": func(t *testing.T, s *Store, e registry.Entry) {
			delKeys(t, s, sessionKey(e.Session.Key))
		},
		"the tools": func(t *testing.T, s *Store, e registry.Entry) {
			s.conn.Client().HDel(ctx, sessionKey(e.Session.Key), fieldSet)
		},
		"a change of the tools": func(t *testing.T, s *Store, e registry.Entry) {
			putTools(t, s, e.Session, spec(t, "camera", "previous"), spec(t, "mic", "x"))
		},
		"removal of all tools": func(t *testing.T, s *Store, e registry.Entry) { putTools(t, s, e.Session) },
		"the members of the set": func(t *testing.T, s *Store, e registry.Entry) {
			delKeys(t, s, membersIndex(tenant, newToolSet(e.Tools).hash))
		},
		"an update": func(t *testing.T, s *Store, e registry.Entry) {
			before := e.Session
			before.DeviceID = "previous"
			if err := s.Update(ctx, before); err != nil {
				t.Fatal(err)
			}
		},
		"an index": func(t *testing.T, s *Store, e registry.Entry) {
			delKeys(t, s, deviceIndex(tenant, "device-s1"))
		},
		"an index entry": func(t *testing.T, s *Store, e registry.Entry) {
			s.conn.Client().ZRem(ctx, sessionsIndex(tenant), e.Session.Key.Session)
		},
		"a place among the tools": func(t *testing.T, s *Store, e registry.Entry) {
			delKeys(t, s, offersIndex(tenant))
		},
		"the pod's list": func(t *testing.T, s *Store, e registry.Entry) {
			delKeys(t, s, podSessionsKey("a"))
		},
		"everything": func(t *testing.T, s *Store, _ registry.Entry) { s.conn.Client().FlushAll(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := storeOn(t, Options{})
			heartbeat(t, s, "a")
			e := putTools(t, s, claim(t, s, "s1", "a"), spec(t, "camera", "x"), spec(t, "mic", "x"))
			lose(t, s, e)
			missing, lost, err := s.Refresh(ctx, []registry.Entry{e})
			if err != nil || len(lost) != 0 || (len(missing) == 1) != (name != "nothing") {
				t.Fatalf("missing %v, lost %v, %v", missing, lost, err)
			}
			heartbeat(t, s, "a")
			if e.Session, err = s.Restore(ctx, e); err != nil {
				t.Fatal(err)
			}
			if missing, lost, err := s.Refresh(ctx, []registry.Entry{e}); err != nil || len(missing)+len(lost) != 0 {
				t.Errorf("after restoring: missing %v, lost %v, %v", missing, lost, err)
			}
			if got := grouped(t, s); got != "camera:1 mic:1" {
				t.Errorf("groups %q", got)
			}
			q := registry.Query{Tool: "camera", Target: registry.Target{DeviceID: e.Session.DeviceID, UserID: "user"}}
			if got := listed(t, s, q); got != "s1" {
				t.Errorf("listed %q", got)
			}
		})
	}
}

func TestRefreshWritesLostSetsAgain(t *testing.T) {
	url := redistest.Single(t)
	s := storeOn(t, Options{URL: url})
	ctx := context.Background()
	heartbeat(t, s, "a")
	e := putTools(t, s, claim(t, s, "s1", "a"), spec(t, "camera", "x"))
	delKeys(t, s, setKey(tenant, newToolSet(e.Tools).hash))
	if got := must[registry.Entry](t)(s.Entry(ctx, e.Session.Key)); len(got.Tools) != 0 {
		t.Fatalf("tools of a set that is not there are listed: %+v", got.Tools)
	}
	if missing, _, err := s.Refresh(ctx, []registry.Entry{e}); err != nil || len(missing) != 0 {
		t.Fatalf("missing %v, %v", missing, err)
	}
	reader := storeOn(t, Options{URL: url}) // one that knows nothing yet
	if got := must[registry.Entry](t)(reader.Entry(ctx, e.Session.Key)); len(got.Tools) != 1 {
		t.Errorf("tools %+v", got.Tools)
	}
}

func TestRefreshWritesLostSpecsAgain(t *testing.T) {
	s := storeOn(t, Options{})
	ctx := context.Background()
	heartbeat(t, s, "a")
	e := putTools(t, s, claim(t, s, "s1", "a"), spec(t, "camera", "x"))
	delKeys(t, s, specKey(tenant, e.Tools[0].Hash()))
	if got := must[registry.Entry](t)(s.Entry(ctx, e.Session.Key)); len(got.Tools) != 0 {
		t.Fatalf("a tool without specification is listed: %+v", got.Tools)
	}
	if missing, _, err := s.Refresh(ctx, []registry.Entry{e}); err != nil || len(missing) != 0 {
		t.Fatalf("missing %v, %v", missing, err)
	}
	if got := must[registry.Entry](t)(s.Entry(ctx, e.Session.Key)); len(got.Tools) != 1 {
		t.Errorf("tools %+v", got.Tools)
	}
}

// TestWritesToALostSessionArePutOff: the pod must not take "the store was emptied" for "somebody else has it".
func TestWritesToALostSessionArePutOff(t *testing.T) {
	s := storeOn(t, Options{})
	ctx := context.Background()
	sess := claim(t, s, "s1", "a")
	s.conn.Client().FlushAll(ctx)
	for what, err := range map[string]error{
		"update": s.Update(ctx, sess), "set tools": s.SetTools(ctx, sess, []registry.ToolSpec{spec(t, "x", "x")}),
	} {
		if registry.AsError(err).Code != registry.CodeStoreUnavailable {
			t.Errorf("%s: %v", what, err)
		}
	}
}

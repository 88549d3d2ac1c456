package redisstore

import (
	"errors"
	"testing"

	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
)

// A release that was interrupted leaves nothing behind once it is finished: no tool is counted that no device has.
func TestAnInterruptedReleaseIsRepeated(t *testing.T) {
	server := redistest.Start(t)
	s := storeOn(t, Options{URL: server.URL()})
	heartbeat(t, s, "a")
	e := putTools(t, s, claim(t, s, "s1", "a"), spec(t, "camera", "x"))
	members := membersIndex(tenant, newToolSet(e.Tools).hash)
	client := s.conn.Client()
	// A key of another type stops the removal from the indexes, as a connection that breaks would.
	must[string](t)(client.Rename(t.Context(), members, "fh:aside").Result())
	must[string](t)(client.Set(t.Context(), members, "x", 0).Result())
	current, err := s.Release(t.Context(), e.Session, registry.ReturnWait)
	part, ok := errors.AsType[*registry.UnfinishedError](err)
	if !current || !ok {
		t.Fatalf("interrupted: %v, %v", current, err)
	}
	if err := part.Finish(t.Context()); err == nil {
		t.Error("finished while the index cannot be read")
	}
	must[string](t)(client.Rename(t.Context(), "fh:aside", members).Result())
	if err := part.Finish(t.Context()); err != nil {
		t.Error(err)
	}
	for _, index := range []string{members, sessionsIndex(tenant), podSessionsKey("a")} {
		if n := client.ZCard(t.Context(), index).Val(); n != 0 {
			t.Errorf("%s still has %d", index, n)
		}
	}
	if n := client.Exists(t.Context(), sessionKey(e.Session.Key)).Val(); n != 0 {
		t.Error("the claim is still there")
	}
}

// A release whose answer was lost has ended the claim, and with it what says where the session was listed. The pod
// still knows.
func TestAReleaseWithoutAnAnswerIsFinished(t *testing.T) {
	server := redistest.Start(t)
	s := storeOn(t, Options{URL: server.URL()})
	heartbeat(t, s, "a")
	e := putTools(t, s, claim(t, s, "s1", "a"), spec(t, "camera", "x"))
	stays := putTools(t, s, claim(t, s, "s2", "a"), spec(t, "camera", "x"))
	pipe := s.conn.Pipeline()
	s.release(pipe, e.Session.Ref(), "a", 0)
	if err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	if current, err := s.Release(t.Context(), e.Session, 0); err != nil || current {
		t.Errorf("repeated: %v, %v", current, err)
	}
	if err := s.Forget(e)(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Forget(registry.Entry{Session: older(stays.Session), Tools: stays.Tools})(t.Context()); err != nil {
		t.Error(err)
	}
	for _, index := range []string{
		membersIndex(tenant, newToolSet(e.Tools).hash), sessionsIndex(tenant), podSessionsKey("a"),
	} {
		if n := s.conn.Client().ZCard(t.Context(), index).Val(); n != 1 {
			t.Errorf("%s has %d, want only the session that stays", index, n)
		}
	}
}

// older returns an earlier claim of a session.
func older(s registry.Session) registry.Session {
	s.Generation--
	return s
}

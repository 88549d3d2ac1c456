package redisstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
)

// fullStore returns a store with these sessions, each with a tool, and what fills its server.
func fullStore(t *testing.T, sessions ...string) (s *Store, claimed []registry.Entry, fill func(full bool)) {
	t.Helper()
	server := redistest.Start(t)
	s = storeOn(t, Options{URL: server.URL()})
	heartbeat(t, s, "a")
	for _, name := range sessions {
		claimed = append(claimed, putTools(t, s, claim(t, s, name, "a"), spec(t, "camera", "x")))
	}
	return s, claimed, func(full bool) {
		t.Helper()
		limit := map[bool]string{true: "1", false: "0"}[full]
		if out, err := server.Command("config", "set", "maxmemory", limit); err != nil || out != "OK" {
			t.Fatal(out, err)
		}
	}
}

// What removes sessions makes room in a full Redis. It must not need any.
func TestAFullRedisReleasesSessions(t *testing.T) {
	for name, back := range map[string]time.Duration{"expected back": registry.ReturnWait, "gone for good": 0} {
		t.Run(name, func(t *testing.T) {
			s, claimed, fill := fullStore(t, "s1")
			fill(true)
			current, err := s.Release(t.Context(), claimed[0].Session, back)
			if err != nil || !current {
				t.Errorf("released %v, %v", current, err)
			}
			left := s.conn.Client().Exists(t.Context(), sessionKey(claimed[0].Session.Key)).Val()
			if left += s.conn.Client().ZCard(t.Context(), sessionsIndex(tenant)).Val(); left != 0 {
				t.Errorf("%d traces are left", left)
			}
			fill(false)
			if _, err := s.Entry(t.Context(), claimed[0].Session.Key); !errors.Is(err, registry.CodeNotConnected) {
				t.Errorf("the released session: %v", err)
			}
			due := must[[]registry.Awaited](t)(s.Awaited(t.Context(), registry.Query{Tenant: tenant, Tool: "camera"}))
			if (len(due) == 1) != (back > 0) {
				t.Errorf("awaited %+v", due)
			}
		})
	}
}

func TestAFullRedisIsSwept(t *testing.T) {
	s, claimed, fill := fullStore(t, "s1", "s2")
	lapse(t, s, "a")
	fill(true)
	swept, err := s.Sweep(t.Context())
	if err != nil || len(swept) != 1 {
		t.Errorf("swept %v, %v", swept, err)
	}
	for _, e := range claimed {
		if n := s.conn.Client().Exists(t.Context(), sessionKey(e.Session.Key)).Val(); n != 0 {
			t.Errorf("%s is left", e.Session.Key.Session)
		}
	}
	if n := s.conn.Client().ZCard(t.Context(), podSessionsKey("a")).Val(); n != 0 {
		t.Errorf("the pod has %d sessions still", n)
	}
}

// A fleet whose leases cannot be renewed would sweep itself.
func TestAFullRedisRenewsLeases(t *testing.T) {
	s, _, fill := fullStore(t, "s1")
	fill(true)
	known, err := s.Heartbeat(t.Context(), "a")
	if err != nil || !known {
		t.Errorf("known %v, %v", known, err)
	}
	if left := s.conn.Client().PTTL(t.Context(), podsKey).Val(); left <= 0 {
		t.Errorf("the leases live for %v", left)
	}
}

// A session whose pulse is due lives on in a full Redis.
func TestAFullRedisRefreshesSessions(t *testing.T) {
	s, claimed, fill := fullStore(t, "s1")
	ctx, key := t.Context(), sessionKey(claimed[0].Session.Key)
	fill(true)
	if err := s.conn.Client().PExpire(ctx, key, time.Minute/2).Err(); err != nil { // most of its life is over
		t.Fatal(err)
	}
	claimed[0].Pulse = registry.Pulse{At: time.Now(), RoundTrip: time.Millisecond}
	missing, lost, err := s.Refresh(ctx, claimed)
	if err != nil || len(missing)+len(lost) != 0 {
		t.Errorf("missing %v, lost %v, %v", missing, lost, err)
	}
	if left := s.conn.Client().PTTL(ctx, key).Val(); left <= time.Minute/2 {
		t.Errorf("the session lives for %v more", left)
	}
}

// The script of a claim needs no memory that the session before did not have.
func TestAFullRedisLetsAClaimReplaceAnother(t *testing.T) {
	s, claimed, fill := fullStore(t, "s1")
	heartbeat(t, s, "b")
	fill(true)
	next := claimed[0].Session
	next.Pod, next.Generation = "b", registry.AnyHolder
	_, claimErr := s.Claim(context.Background(), next)
	if pod := s.conn.Client().HGet(t.Context(), sessionKey(next.Key), fieldPod).Val(); pod != "b" {
		t.Errorf("the session is at %q: %v", pod, claimErr)
	}
}

package registry

import (
	"fmt"
	"testing"
	"time"
)

func TestRouteCacheForgets(t *testing.T) {
	now := time.Now()
	r := newRouteCache()
	r.now = func() time.Time { return now }
	entry := func(i int) Entry {
		return Entry{Session: Session{Key: Key{Tenant: "t", Session: fmt.Sprint(i)}, Generation: int64(i)}}
	}
	r.put(entry(1))
	if e := r.get(entry(1).Session.Key); e == nil || e.Session.Generation != 1 {
		t.Errorf("remembered %+v", e)
	}
	now = now.Add(routeLife + 1)
	if r.get(entry(1).Session.Key) != nil {
		t.Error("an old entry is still believed")
	}
	r.put(entry(2))
	r.drop(entry(2).Session.Key)
	if r.get(entry(2).Session.Key) != nil {
		t.Error("a dropped entry is still there")
	}
	for i := range 3 * routeLimit {
		r.put(entry(i))
	}
	if n := len(r.current) + len(r.previous); n > 2*routeLimit {
		t.Errorf("%d entries are kept", n)
	}
	for range 2 { // the few that are asked for later let the many go
		now = now.Add(routeLife + 1)
		r.put(entry(1))
	}
	if n := len(r.current) + len(r.previous); n > 2 {
		t.Errorf("%d entries are kept that are too old to be used", n)
	}
}

// Before a busy session is forgotten one of its callers reads it again; the others go on with what is remembered, if they
// have to until its life ends, and no longer.
func TestOneCallerReadsABusySessionAgain(t *testing.T) {
	now := time.Now()
	r := newRouteCache()
	r.now = func() time.Time { return now }
	e := Entry{Session: Session{Key: Key{Tenant: "t", Session: "s"}}}
	sent := func(callers int) (n int) {
		for range callers {
			if r.get(e.Session.Key) == nil {
				n++
			}
		}
		return n
	}
	r.put(e)
	for _, at := range []struct {
		after time.Duration
		want  int
	}{{routeLife - routeAhead, 0}, {1, 1}, {routeAhead - 1, 0}, {1, 10}} {
		if now = now.Add(at.after); sent(10) != at.want {
			t.Errorf("%v before the end: not %d of 10 callers were sent to read it", r.current[e.Session.Key].until.Sub(now), at.want)
		}
	}
	r.put(e)
	if n := sent(10); n != 0 {
		t.Errorf("%d callers were sent to read what has just been read", n)
	}
}

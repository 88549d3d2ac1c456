package routing

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

func TestRouteCacheForgets(t *testing.T) {
	now := time.Now()
	r := newRouteCache()
	r.now = func() time.Time { return now }
	entry := func(i int) registry.Entry {
		return registry.Entry{Session: registry.Session{Key: registry.Key{Tenant: "t", Session: fmt.Sprint(i)}, Generation: int64(i)}}
	}
	r.put(entry(1))
	if e, _ := r.get(entry(1).Session.Key); e == nil || e.Session.Generation != 1 {
		t.Errorf("remembered %+v", e)
	}
	now = now.Add(routeLife + 1)
	if e, _ := r.get(entry(1).Session.Key); e != nil {
		t.Error("an old entry is still believed")
	}
	r.put(entry(2))
	r.drop(entry(2).Session.Key)
	if e, _ := r.get(entry(2).Session.Key); e != nil {
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
	e := registry.Entry{Session: registry.Session{Key: registry.Key{Tenant: "t", Session: "s"}}}
	sent := func(callers int) (n int) {
		for range callers {
			if known, renew := r.get(e.Session.Key); known == nil || renew > 0 {
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

// flakyDirectory cannot be read while it is out of reach, and knows no session that is gone.
type flakyDirectory struct {
	registry.Directory
	away, gone bool
}

func (d *flakyDirectory) Entry(ctx context.Context, k registry.Key) (registry.Entry, error) {
	if d.away {
		return registry.Entry{}, registry.StoreUnavailable("read the session", context.DeadlineExceeded)
	}
	if d.gone {
		return registry.Entry{}, registry.Errorf(registry.CodeSessionNotFound, "No session has this id.")
	}
	return d.Directory.Entry(ctx, k)
}

// A session that cannot be read again is still known until its life ends, to who tried, too.
func TestRouteHoldsWhenItCannotBeReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		asking := startPod(t, store, "a")
		connect(t, startPod(t, store, "b"), deafConn{}, nil)
		dir := &flakyDirectory{Directory: asking.Router.dir}
		asking.Router.dir = dir
		resolve := func() error {
			_, err := asking.Router.Resolve(t.Context(), "t", "tool", registry.Target{SessionID: "s"}, registry.SelectNone)
			return err
		}
		for _, step := range []struct {
			wait time.Duration
			away bool
			gone bool
			code registry.Code
		}{
			{away: false}, {wait: routeLife - routeAhead/2, away: true}, {away: true}, {away: false},
			{wait: routeLife - routeAhead/2, away: true}, {wait: routeAhead, away: true, code: registry.CodeStoreUnavailable},
			{away: false}, {wait: routeLife - routeAhead/2, gone: true, code: registry.CodeSessionNotFound}, {gone: true, code: registry.CodeSessionNotFound},
		} {
			time.Sleep(step.wait)
			dir.away, dir.gone = step.away, step.gone
			if err := resolve(); step.code == "" && err != nil || step.code != "" && !errors.Is(err, step.code) {
				t.Errorf("%+v: %v", step, err)
			}
		}
	})
}

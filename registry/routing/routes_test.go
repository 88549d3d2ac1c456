package routing

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

func TestRouteCacheForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouteCache()
		e := registry.Entry{Session: registry.Session{Key: registry.Key{Tenant: "t", Session: "s"}, Generation: 1}}
		r.put(e)
		if e, _ := r.get(e.Session.Key); e == nil || e.Session.Generation != 1 {
			t.Errorf("remembered %+v", e)
		}
		time.Sleep(routeLife + 1)
		if e, _ := r.get(e.Session.Key); e != nil {
			t.Error("an old entry is still believed")
		}
		r.put(e)
		r.drop(e.Session.Key)
		if e, _ := r.get(e.Session.Key); e != nil {
			t.Error("a dropped entry is still there")
		}
	})
}

// Before a busy session is forgotten one of its callers reads it again; the others go on with what is remembered, if
// they have to until its life ends, and no longer.
func TestOneCallerReadsABusySessionAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouteCache()
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
		for i, at := range []struct {
			after time.Duration
			want  int
		}{{routeLife - routeAhead, 0}, {1, 1}, {routeAhead - 1, 0}, {1, 10}} {
			time.Sleep(at.after)
			if n := sent(10); n != at.want {
				t.Errorf("step %d: %d of 10 callers were sent to read it, not %d", i, n, at.want)
			}
		}
		r.put(e)
		if n := sent(10); n != 0 {
			t.Errorf("%d callers were sent to read what has just been read", n)
		}
	})
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

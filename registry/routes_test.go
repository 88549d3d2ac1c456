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

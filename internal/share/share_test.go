package share_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/internal/share"
)

func takeAll(t *testing.T, p *share.Pool, o share.Owner) (grants []*share.Grant, why share.Bound) {
	t.Helper()
	for {
		g, err := p.Try(o, 1)
		if err != nil {
			full, ok := errors.AsType[*share.FullError](err)
			if !ok {
				t.Fatal(err)
			}
			return grants, full.Bound
		}
		grants = append(grants, g)
	}
}

// A tenant has half of a pool while it is alone, an identity a quarter, and however many tenants come, the next one
// finds room.
func TestShares(t *testing.T) {
	p := share.New(share.Bounds{Pod: 120})
	if got, why := takeAll(t, p, share.Owner{Tenant: "a", Identity: "1"}); len(got) != 30 || why != share.Identity {
		t.Errorf("an identity has %d, bounded by %s", len(got), why)
	}
	if got, why := takeAll(t, p, share.Owner{Tenant: "a"}); len(got) != 30 || why != share.Tenant {
		t.Errorf("its tenant has %d more, bounded by %s", len(got), why)
	}
	var all []*share.Grant
	for _, tenant := range []struct {
		name string
		want int
	}{{"b", 30}, {"c", 15}, {"d", 7}, {"e", 4}, {"f", 2}, {"g", 1}, {"h", 1}} {
		got, _ := takeAll(t, p, share.Owner{Tenant: tenant.name})
		if len(got) != tenant.want {
			t.Errorf("tenant %s has %d, not %d", tenant.name, len(got), tenant.want)
		}
		all = append(all, got...)
	}
	if held := p.ByTenant(); len(held) != 8 || held["a"] != 60 || held["g"] != 1 {
		t.Errorf("tenants hold %v", held)
	}
	if _, why := takeAll(t, p, share.Owner{Tenant: "i"}); why != share.Pod {
		t.Errorf("a full pod is bounded by %s", why)
	}
	for _, g := range all {
		g.Release()
		g.Release() // does nothing
	}
	if s := p.Stats(); s.Held != 60 {
		t.Errorf("%+v", s)
	}
}

// Where a tenant may hold several times what is free, one that is alone gets more than half, and others find room.
func TestSharesOfSeveralTimes(t *testing.T) {
	p := share.New(share.Bounds{Pod: 160, Identity: 80, Times: 3})
	if got, why := takeAll(t, p, share.Owner{Tenant: "a", Identity: "1"}); len(got) != 80 || why != share.Identity {
		t.Errorf("an identity has %d, bounded by %s", len(got), why)
	}
	if got, why := takeAll(t, p, share.Owner{Tenant: "a"}); len(got) != 40 || why != share.Tenant {
		t.Errorf("its tenant has %d more, bounded by %s", len(got), why)
	}
	for _, want := range []int{30, 7, 2, 1} {
		if got, _ := takeAll(t, p, share.Owner{Tenant: fmt.Sprint(want)}); len(got) != want {
			t.Errorf("another tenant has %d, not %d", len(got), want)
		}
	}
}

// A tenant that is alone does as many parts of short work as there are turns, and another one does not wait for it.
func TestTurns(t *testing.T) {
	for _, n := range []int{1, 2, 4, 64} {
		p := share.New(share.Turns(n))
		if got, why := takeAll(t, p, share.Owner{Tenant: "a", Identity: "1"}); len(got) != n {
			t.Errorf("of %d turns one has %d, bounded by %s", n, len(got), why)
		}
		if got, why := takeAll(t, p, share.Owner{Tenant: "b", Identity: "1"}); len(got) != 1 {
			t.Errorf("beside %d turns another one has %d, bounded by %s", n, len(got), why)
		}
	}
}

// A grant that grows counts only what it lacks. If that does not fit, it stays as it is.
func TestGrow(t *testing.T) {
	p := share.New(share.Bounds{Pod: 120})
	g, err := p.Try(share.Owner{Tenant: "a", Identity: "1"}, 20)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int64{30, 10} {
		if err := g.Grow(n); err != nil || p.Stats().Held != 30 {
			t.Errorf("to %d: %v, %+v", n, err, p.Stats())
		}
	}
	full, ok := errors.AsType[*share.FullError](g.Grow(31))
	if s := p.Stats(); !ok || full.Bound != share.Identity || s.Held != 30 || s.Refused[share.Identity] != 1 {
		t.Errorf("beyond the bound: %+v, %+v", full, s)
	}
	if g.Release(); p.Stats().Held != 0 {
		t.Errorf("released: %+v", p.Stats())
	}
}

// A tenant that holds nothing gets what fits into the pool, also if that is more than its share.
func TestOneRequestMayTakeMore(t *testing.T) {
	p := share.New(share.Bounds{Pod: 10})
	o := share.Owner{Tenant: "a", Identity: "1"}
	g, err := p.Try(o, 1000)
	if err != nil {
		t.Fatal(err)
	}
	g.Shrink(4)
	if _, err := p.Try(o, 1); err == nil {
		t.Error("an identity got more than its share")
	}
	if _, err := p.Try(share.Owner{Tenant: "b"}, 6); err != nil {
		t.Error(err)
	}
	if p.Held("a") != 4 || p.Held("b") != 6 {
		t.Error(p.Held("a"), p.Held("b"))
	}
}

// Whatever a tenant has waiting, the request of another is served next, and so is that of another identity.
func TestFairQueueing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := share.New(share.Bounds{Pod: 4, Identity: 2})
		var running sync.WaitGroup
		defer running.Wait()
		var mu sync.Mutex
		var order []string
		run := func(o share.Owner) {
			running.Go(func() {
				g, err := p.Acquire(t.Context(), o, 1)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, o.Tenant+o.Identity)
				mu.Unlock()
				time.Sleep(time.Second)
				g.Release()
			})
			synctest.Wait()
		}
		for range 20 {
			run(share.Owner{Tenant: "a", Identity: "1"})
		}
		run(share.Owner{Tenant: "a", Identity: "2"})
		run(share.Owner{Tenant: "b", Identity: "1"})
		mu.Lock()
		if got := fmt.Sprint(order); got != "[a1 a1 b1]" {
			t.Errorf("at first %s run", got)
		}
		mu.Unlock()
		time.Sleep(1500 * time.Millisecond)
		mu.Lock()
		if got := fmt.Sprint(order[3:5]); got != "[a2 a1]" && got != "[a1 a2]" {
			t.Errorf("then %s run", got)
		}
		mu.Unlock()
	})
}

// A large request waits for those before it, and is not passed by small ones.
func TestLargeRequestIsNotPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := share.New(share.Bounds{Pod: 10})
		first, err := p.Try(share.Owner{Tenant: "a"}, 4)
		if err != nil {
			t.Fatal(err)
		}
		large := make(chan *share.Grant, 1)
		go func() {
			g, _ := p.Acquire(t.Context(), share.Owner{Tenant: "b"}, 10)
			large <- g
		}()
		synctest.Wait()
		if _, err := p.Try(share.Owner{Tenant: "c"}, 1); err == nil {
			t.Error("a small request passed a large one")
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		small := make(chan error, 1)
		go func() {
			_, err := p.Acquire(ctx, share.Owner{Tenant: "c"}, 1)
			small <- err
		}()
		synctest.Wait()
		cancel(gone)
		if err := <-small; !errors.Is(err, gone) {
			t.Error(err)
		}
		first.Release()
		(<-large).Release()
		if s := p.Stats(); s.Held != 0 || s.Waiting != 0 || s.AllRefused() != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// However many wait, there is a bound, and one tenant does not use it up. What others have waiting delays a request by
// one of theirs at most.
func TestWaitingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := share.New(share.Bounds{Pod: 1})
		held, err := p.Try(share.Owner{Tenant: "a"}, 1)
		if err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		run := func(tenant string, served *atomic.Int64) {
			running.Go(func() {
				g, err := p.Acquire(t.Context(), share.Owner{Tenant: tenant}, 1)
				if err != nil {
					return
				}
				defer g.Release()
				time.Sleep(time.Second)
				served.Add(1)
			})
			synctest.Wait()
		}
		var a, b atomic.Int64
		for range 5000 {
			run("a", &a)
		}
		run("b", &b)
		if s := p.Stats(); s.Waiting != 4097 || s.Refused[share.Tenant] != 5000-4096 {
			t.Errorf("%+v", s)
		}
		for range 4095 {
			run("b", &b)
		}
		run("c", new(atomic.Int64))
		if s := p.Stats(); s.Waiting != 8192 || s.Refused[share.Pod] != 1 {
			t.Errorf("%+v", s)
		}
		held.Release()
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		if a.Load() != 1 || b.Load() != 1 {
			t.Errorf("after one of a, and with one of b waiting, %d of a and %d of b have run", a.Load(), b.Load())
		}
		running.Wait()
	})
}

// Stats of pools add up, and each bound has its name.
func TestStats(t *testing.T) {
	p := share.New(share.Bounds{Pod: 4})
	a := share.Owner{Tenant: "a"}
	if p.TakeFree(a, 2) == nil || p.TakeFree(a, 2) != nil {
		t.Error("a tenant may take half of what is free, and no more")
	}
	if bound := p.Lacks(a, 1); bound != share.Tenant {
		t.Errorf("lacks %q", bound)
	}
	if _, err := p.Try(a, 1); err == nil || !strings.Contains(err.Error(), "tenant") {
		t.Errorf("%v", err)
	}
	s := p.Stats()
	if sum := s.Plus(s); sum.Held != 4 || sum.Waiting != 0 || sum.AllRefused() != 2*s.AllRefused() ||
		s.AllRefused() != 1 || sum.Refused[share.Tenant] != 2 {
		t.Errorf("%+v", sum)
	}
}

// A request that is served at the moment its time is up has nothing, and the next one has its part.
func TestServedTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := share.New(share.Bounds{Pod: 1})
		first, err := p.Try(share.Owner{Tenant: "a"}, 1)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := p.Acquire(ctx, share.Owner{Tenant: "b"}, 1)
			ended <- err
		}()
		synctest.Wait()
		cancel()
		first.Release()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("served: %v", err)
		}
		if s := p.Stats(); s.Held != 0 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
	})
}

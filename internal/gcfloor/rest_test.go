package gcfloor

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const mb = 1 << 20

// pod plays what a pod uses, second by second.
type pod struct {
	rest rest
	now  time.Time
	use  usage
}

// second lets a second pass in which so many bytes were allocated, and reports whether memory was given back.
func (p *pod) second(allocated uint64) bool {
	p.now = p.now.Add(restTick)
	p.use.allocated += allocated
	return p.rest.due(p.now, p.use)
}

// until returns after how many seconds like this one memory was given back, at most limit; zero: not at all.
func (p *pod) until(allocated uint64, limit int) int {
	for s := 1; s <= limit; s++ {
		if p.second(allocated) {
			return s
		}
	}
	return 0
}

func TestAPodThatRestsGivesMemoryBack(t *testing.T) {
	full := usage{resident: 200 * mb, freeable: 25 * mb}
	for name, c := range map[string]struct {
		use       usage
		allocated uint64 // in each second
		after     int
	}{
		"at rest":             {full, 0, restTicks},
		"little work":         {full, restAllocated - 1, restTicks},
		"at work":             {full, restAllocated, 0},
		"too little to free":  {usage{resident: 200 * mb, freeable: 25*mb - 1}, 0, 0},
		"nothing to free":     {usage{resident: 200 * mb}, 0, 0},
		"everything is freed": {usage{resident: 200 * mb, freeable: 200 * mb}, 0, restTicks},
	} {
		p := pod{now: time.Unix(1e9, 0), use: c.use}
		if got := p.until(c.allocated, 600); got != c.after {
			t.Errorf("%s: memory was given back after %d s, not %d (zero: never)", name, got, c.after)
		}
	}
}

func TestWorkBeginsTheRestAnew(t *testing.T) {
	p := pod{now: time.Unix(1e9, 0), use: usage{resident: 200 * mb, freeable: 100 * mb}}
	for range 100 {
		if p.until(0, restTicks-1) != 0 || p.second(restAllocated) {
			t.Fatal("memory was given back between two pieces of work")
		}
	}
	if got := p.until(0, 600); got != restTicks {
		t.Errorf("given back %d s after the work, not %d", got, restTicks)
	}
}

func TestMemoryIsGivenBackOnceAMinute(t *testing.T) {
	p := pod{now: time.Unix(1e9, 0), use: usage{resident: 200 * mb, freeable: 100 * mb}}
	p.until(0, 600)
	p.second(restAllocated)
	if got, want := p.until(0, 600)+1, int(restEvery/restTick); got != want {
		t.Errorf("given back again after %d s, not %d", got, want)
	}
}

// garbage is kept here, or the compiler would keep it on the stack.
var garbage []byte

func TestGarbageCountsAsFreeable(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	debug.FreeOSMemory()
	read := newReader(0)
	before := read()
	garbage = make([]byte, 64*mb)
	for i := range garbage {
		garbage[i] = 1
	}
	runtime.KeepAlive(garbage)
	garbage = nil
	dirty := read()
	if grown := dirty.freeable - before.freeable; grown < 60*mb || grown > 70*mb {
		t.Errorf("64 MB of garbage count as %d bytes that may be freed", grown)
	}
	if got := dirty.allocated - before.allocated; got < 64*mb || got > 70*mb {
		t.Errorf("64 MB count as %d allocated bytes", got)
	}
	debug.FreeOSMemory()
	clean := read()
	if clean.freeable > dirty.freeable-60*mb {
		t.Errorf("%d bytes may be freed after they were, %d before", clean.freeable, dirty.freeable)
	}
	if clean.resident > dirty.resident-60*mb {
		t.Errorf("%d bytes are resident after 64 MB were given back, %d before", clean.resident, dirty.resident)
	}
}

// TestLowerStopsTheWatch: the leak gate of this package sees a goroutine that is left.
func TestLowerStopsTheWatch(t *testing.T) {
	Raise(nil)()
	Raise([]string{"GOGC=200"})()
	Raise([]string{"GOMEMLIMIT=1GiB"})()
}

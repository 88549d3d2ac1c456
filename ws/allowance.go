package ws

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"github.com/farhand/farhand/agent/auth"
	"github.com/farhand/farhand/registry"
)

// Work is what devices may cost beside the number of their frames. Its unit is a frame. Who has spent too much is read
// more slowly, and so is who takes part in what a whole source has spent too much.
const (
	bytesPerUnit  = 4 << 10 // of what is read
	unitsPerRead  = 0.25    // for each look at a socket: a byte at a time is dear
	unitsPerLabel = 10      // for each label that is put or taken away, which is written to the store
	unitsPerStray = 10      // for an answer to a call that is not open, which is looked for in the store

	// What a session may spend at once: times the burst of frames, and times the largest message, of which it has one a
	// second, too. A message is paid for before it is known what it is.
	workBurst    = 2
	largestBurst = 4

	// What a source may spend, in times of the frames a session may send.
	sourceRate  = 16
	sourceBurst = 16

	// What each session may spend whatever others of its source do.
	floorRate  = 10
	floorBurst = 100

	maxPause = time.Second // for one look at a socket
)

// Labels are written to an index each, so how many a session changes is limited beyond its work.
const (
	labelRate  = 1   // a second
	labelBurst = 160 // a set of labels, another one, and back
)

// limits are the limits of all allowances.
type limits struct {
	frames, work, floor, definitions, labels auth.Limit
}

func newLimits(cfg *Config) limits {
	largest := float64(max(cfg.MaxFrame, cfg.maxAnswer())) / bytesPerUnit
	definitions := registerBurst * float64(cfg.Admission.MaxToolBytes())
	return limits{
		frames:      auth.Limit{Rate: cfg.MaxFramesPerSecond, Burst: cfg.FrameBurst},
		work:        auth.Limit{Rate: cfg.MaxFramesPerSecond + largest, Burst: workBurst*cfg.FrameBurst + largestBurst*largest},
		floor:       auth.Limit{Rate: floorRate, Burst: floorBurst},
		definitions: auth.Limit{Rate: registerRate, Burst: definitions},
		labels:      auth.Limit{Rate: labelRate, Burst: labelBurst},
	}
}

// device is who an allowance belongs to. Another source with the same session id has another one: it must not be able to
// spend that of the real device.
type device struct {
	key    registry.Key
	source netip.Prefix
}

// allowance is what a device may spend. It outlives its connections, so that a device that connects again does not get
// another one. It is safe for concurrent use.
type allowance struct {
	device device
	owner  *allowances

	// Guarded by the lock of allowances.
	users  int           // connections that use it
	since  time.Duration // when the last of them went
	queued bool          // it is among the idle ones

	mu                                       sync.Mutex
	frames, work, floor, definitions, labels auth.Bucket
	had                                      map[uint64]struct{} // the labels of last time, by their hashes
}

// takeFrames spends frames, if there are as many.
func (a *allowance) takeFrames(n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.frames.Take(a.owner.limits.frames, a.owner.now(), float64(n))
}

// hasFrames reports whether there are some left, which it does not spend.
func (a *allowance) hasFrames() bool {
	l := a.owner.limits.frames
	least := l.Burst / 10
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.frames.Take(l, a.owner.now(), least) {
		return false
	}
	a.frames.Refund(least)
	return true
}

// takeDefinitions spends bytes of tool definitions, if there are as many.
func (a *allowance) takeDefinitions(n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.definitions.Take(a.owner.limits.definitions, a.owner.now(), float64(n))
}

// takeLabels spends the changes from the labels the device had last to these, if there are as many. A device that comes back
// as it was changes nothing.
func (a *allowance) takeLabels(labels map[string]string) bool {
	hashes := make(map[uint64]struct{}, len(labels))
	for k, v := range labels {
		hashes[maphash.Comparable(a.owner.seed, [2]string{k, v})] = struct{}{}
	}
	a.mu.Lock()
	changes := 0
	for h := range hashes {
		if _, had := a.had[h]; !had {
			changes++
		}
	}
	changes += len(a.had) - (len(hashes) - changes)
	ok := a.labels.Take(a.owner.limits.labels, a.owner.now(), float64(changes))
	if ok {
		a.had = hashes
	}
	a.mu.Unlock()
	if ok {
		a.spend(unitsPerLabel * float64(changes)) // what is read next waits for it
	}
	return ok
}

// spend spends units of work and returns how long the device should be left alone for that.
func (a *allowance) spend(units float64) time.Duration {
	now, l := a.owner.now(), &a.owner.limits
	a.mu.Lock()
	pause := a.work.Spend(l.work, now, units)
	free := a.floor.Take(l.floor, now, units)
	a.mu.Unlock()
	if free {
		return pause
	}
	return max(pause, a.owner.sources.Spend(a.device.source, units))
}

// refund gives back what an answer to an open call has cost: the gateway had asked for it.
func (a *allowance) refund(frames int, units float64) {
	a.mu.Lock()
	a.frames.Refund(float64(frames))
	a.work.Refund(units)
	rest := a.floor.Refund(units) // so whoever does nothing but answer never needs what a source shares
	a.mu.Unlock()
	if rest > 0 {
		a.owner.sources.Refund(a.device.source, rest)
	}
}

// maxIdle bounds the allowances that are remembered of devices that are gone.
const maxIdle = 1 << 16

// allowances are those of the devices that are connected and of those that were a while ago. They are safe for
// concurrent use.
type allowances struct {
	limits  limits
	started time.Time
	seed    maphash.Seed
	sources *auth.Buckets[netip.Prefix]

	mu   sync.Mutex
	by   map[device]*allowance
	idle []idleAllowance // those that were left, oldest first; some are in use again
}

// idleAllowance is an allowance and when it was left.
type idleAllowance struct {
	*allowance
	at time.Duration
}

func newAllowances(l limits) *allowances {
	return &allowances{
		limits: l, started: time.Now(), seed: maphash.MakeSeed(), by: make(map[device]*allowance),
		sources: auth.NewBuckets[netip.Prefix](auth.Limit{Rate: sourceRate * l.frames.Rate, Burst: sourceBurst * l.frames.Burst}),
	}
}

func (s *allowances) now() time.Duration { return time.Since(s.started) }

// enter returns the allowance of a device. leave must be called once.
func (s *allowances) acquire(d device) *allowance {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked()
	a := s.by[d]
	if a == nil {
		a = &allowance{device: d, owner: s}
		s.by[d] = a
	}
	a.users++
	return a
}

// spent reports whether a device has no frames left to speak of: it may not come back yet.
func (s *allowances) spent(d device) bool {
	s.mu.Lock()
	a := s.by[d]
	s.mu.Unlock()
	return a != nil && !a.hasFrames()
}

// leave ends the use of an allowance.
func (s *allowances) release(a *allowance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.users--
	a.since = s.now()
	if !a.queued {
		a.queued = true
		s.idle = append(s.idle, idleAllowance{a, a.since})
	}
	s.forgetLocked()
}

// forgetLocked forgets those of devices that have been away for so long that everything is there again, and the oldest
// when there are too many.
func (s *allowances) forgetLocked() {
	l, now := &s.limits, s.now()
	longest := max(l.frames.Refill(), l.work.Refill(), l.definitions.Refill(), l.labels.Refill())
	for len(s.idle) > 0 {
		a := s.idle[0]
		switch {
		case a.users > 0:
			a.queued = false
		case a.since != a.at: // it was used meanwhile
			s.idle = append(s.idle, idleAllowance{a.allowance, a.since})
		case now-a.at >= longest || len(s.idle) > maxIdle:
			delete(s.by, a.device)
		default:
			return
		}
		s.idle = s.idle[1:]
	}
}

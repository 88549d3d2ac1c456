package ws

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// Work is what devices may cost besides the number of their frames. Its unit is a frame. A device that has spent too
// much is read more slowly. So is each device of a source whose devices together have spent too much.
const (
	bytesPerUnit  = 4 << 10 // of what is read
	unitsPerRead  = 0.25    // for each read of a socket: a byte at a time is dear
	unitsPerLabel = 10      // for each label that is added or removed, which is written to the store
	unitsPerStray = 10      // for an answer to a call that is not open, which is looked up in the store
	unitsPerStore = 10      // for a frame that is answered from the store, or changes it

	// What a session may spend at once: multiples of the burst of frames, and of the largest message. It may send one
	// such message a second, too. A message is paid for before its kind is known.
	workBurst    = 2
	largestBurst = 4

	// What a source may spend, in multiples of the frames that a session may send.
	sourceRate  = 16
	sourceBurst = 16

	// What each session may spend whatever other sessions of its source do.
	floorRate  = 10
	floorBurst = 100

	maxPause = time.Second // for one read of a socket
)

// Each label is written to an index of its own, so how many labels a session changes is limited beyond its work.
const (
	labelRate  = 1   // a second
	labelBurst = 160 // to change from one set of labels to another and back
)

// limits are the limits of all budgets.
type limits struct {
	frames, work, floor, definitions, labels auth.Limit
}

func newLimits(cfg *Config) limits {
	largest := float64(max(cfg.MaxFrame, cfg.maxAnswer())) / bytesPerUnit
	definitions := registerBurst * float64(cfg.Admission.Limits().MaxToolBytes)
	return limits{
		frames: auth.Limit{Rate: cfg.MaxFramesPerSecond, Burst: cfg.FrameBurst},
		work: auth.Limit{
			Rate: cfg.MaxFramesPerSecond + largest, Burst: workBurst*cfg.FrameBurst + largestBurst*largest,
		},
		floor:       auth.Limit{Rate: floorRate, Burst: floorBurst},
		definitions: auth.Limit{Rate: registerRate, Burst: definitions},
		labels:      auth.Limit{Rate: labelRate, Burst: labelBurst},
	}
}

// Limits returns what the server takes of one device. What a device has left of its rates is not in it.
func (s *Server) Limits() registry.DeviceLimits {
	admission := s.cfg.Admission.Limits()
	return registry.DeviceLimits{
		FrameBytes: s.cfg.MaxFrame, OutputBytes: s.cfg.MaxOutput,
		FramesPerSecond: s.cfg.MaxFramesPerSecond, FrameBurst: s.cfg.FrameBurst,
		Tools: admission.MaxTools, ToolBytes: admission.MaxToolBytes, ToolByteRate: registerRate,
		SchemaBytes: admission.Tool.SchemaBytes, SchemaDepth: admission.Tool.SchemaDepth,
		Description: admission.Tool.Description, Calls: s.cfg.Pod.Hub.MaxInFlight(),
	}
}

// device identifies the owner of a budget. Another source with the same session id has another budget, because
// it must not be able to spend that of the real device.
type device struct {
	key    registry.Key
	source netip.Prefix
}

// deviceBudget is what a device may spend. It outlives the device's connections, so that connecting again gives nothing
// back. It is safe for concurrent use.
type deviceBudget struct {
	device device
	owner  *deviceBudgets

	// Guarded by the lock of deviceBudgets.
	users  int           // connections that use it
	since  time.Duration // when the last of them ended
	queued bool          // it is in deviceBudgets.idle

	mu                                       sync.Mutex
	frames, work, floor, definitions, labels auth.Bucket
	listings                                 auth.Bucket         // with the limit of definitions
	labelHashes                              map[uint64]struct{} // of the labels the device has now
}

// takeFrames spends n frames and reports true, or spends none and reports false if fewer remain.
func (a *deviceBudget) takeFrames(n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.frames.Take(a.owner.limits.frames, a.owner.now(), float64(n))
}

// hasFrames reports whether at least a tenth of the burst remains. It spends nothing.
func (a *deviceBudget) hasFrames() bool {
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

// takeDefinitions spends n bytes of tool definitions, or none and reports false if fewer remain.
func (a *deviceBudget) takeDefinitions(n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.definitions.Take(a.owner.limits.definitions, a.owner.now(), float64(n))
}

// takeListing spends n bytes of tools that the device asked for, or none and reports false if fewer remain.
func (a *deviceBudget) takeListing(n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.listings.Take(a.owner.limits.definitions, a.owner.now(), float64(n))
}

// takeLabels spends the changes from the labels the device has now to the given ones, or none and reports false if
// fewer remain. A device that comes back with the same labels changes nothing.
func (a *deviceBudget) takeLabels(labels map[string]string) bool {
	hashes := make(map[uint64]struct{}, len(labels))
	for k, v := range labels {
		hashes[maphash.Comparable(a.owner.seed, [2]string{k, v})] = struct{}{}
	}
	a.mu.Lock()
	changes := 0
	for h := range hashes {
		if _, unchanged := a.labelHashes[h]; !unchanged {
			changes++
		}
	}
	changes += len(a.labelHashes) - (len(hashes) - changes)
	ok := a.labels.Take(a.owner.limits.labels, a.owner.now(), float64(changes))
	if ok {
		a.labelHashes = hashes
	}
	a.mu.Unlock()
	if ok {
		a.spend(unitsPerLabel * float64(changes)) // the next read waits for it
	}
	return ok
}

// storeUnits returns what a frame costs because the store takes part in handling it.
func storeUnits(frame any) float64 {
	switch f := frame.(type) {
	case *connectFrame, *registerToolsFrame, *unregisterToolsFrame, *uploadRequestFrame, *approvalResponseFrame:
		return unitsPerStore
	case *toolResultFrame:
		units := 0.0
		for _, p := range f.result.Parts {
			if p.URL != "" { // a slot, which is looked up
				units += unitsPerStore
			}
		}
		return units
	default:
		return 0
	}
}

// spend spends units of work and returns how long to pause before the device is read again.
func (a *deviceBudget) spend(units float64) time.Duration {
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

// refund gives back what an answer to an open call has cost, because the gateway had asked for it.
func (a *deviceBudget) refund(frames int, units float64) {
	a.mu.Lock()
	a.frames.Refund(float64(frames))
	a.work.Refund(units)
	rest := a.floor.Refund(units) // a device that only answers never uses its source's share
	a.mu.Unlock()
	if rest > 0 {
		a.owner.sources.Refund(a.device.source, rest)
	}
}

// maxIdle bounds the budgets that are kept of devices that are gone.
const maxIdle = 1 << 16

// deviceBudgets holds the budgets of connected devices, and of devices that were connected a while ago. It is safe for
// concurrent use.
type deviceBudgets struct {
	limits  limits
	started time.Time
	seed    maphash.Seed
	sources *auth.Buckets[netip.Prefix]

	mu   sync.Mutex
	by   map[device]*deviceBudget
	idle []idleBudget // released ones, oldest first; some are in use again
}

// idleBudget is a budget and when it was released.
type idleBudget struct {
	*deviceBudget
	at time.Duration
}

func newDeviceBudgets(l limits) *deviceBudgets {
	return &deviceBudgets{
		limits: l, started: time.Now(), seed: maphash.MakeSeed(), by: make(map[device]*deviceBudget),
		sources: auth.NewBuckets[netip.Prefix](auth.Limit{
			Rate: sourceRate * l.frames.Rate, Burst: sourceBurst * l.frames.Burst,
		}),
	}
}

func (s *deviceBudgets) now() time.Duration { return time.Since(s.started) }

// acquire returns the budget of a device. release must be called once.
func (s *deviceBudgets) acquire(d device) *deviceBudget {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked()
	a := s.by[d]
	if a == nil {
		a = &deviceBudget{device: d, owner: s}
		s.by[d] = a
	}
	a.users++
	return a
}

// spent reports whether a device has spent nearly all its frames, so that it may not come back yet.
func (s *deviceBudgets) spent(d device) bool {
	s.mu.Lock()
	a := s.by[d]
	s.mu.Unlock()
	return a != nil && !a.hasFrames()
}

// release ends the use of a budget.
func (s *deviceBudgets) release(a *deviceBudget) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.users--
	a.since = s.now()
	if !a.queued {
		a.queued = true
		s.idle = append(s.idle, idleBudget{a, a.since})
	}
	s.forgetLocked()
}

// forgetLocked forgets the budgets of devices that have been away for so long that they are full again, and the
// oldest ones when there are too many.
func (s *deviceBudgets) forgetLocked() {
	l, now := &s.limits, s.now()
	longest := max(l.frames.Refill(), l.work.Refill(), l.definitions.Refill(), l.labels.Refill())
	for len(s.idle) > 0 {
		a := s.idle[0]
		switch {
		case a.users > 0:
			a.queued = false
		case a.since != a.at: // it was used meanwhile
			s.idle = append(s.idle, idleBudget{a.deviceBudget, a.since})
		case now-a.at >= longest || len(s.idle) > maxIdle:
			delete(s.by, a.device)
		default:
			return
		}
		s.idle = s.idle[1:]
	}
}

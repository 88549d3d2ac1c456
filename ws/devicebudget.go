package ws

import (
	"container/list"
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/internal/fields"
)

// Work limits the cost of devices beyond their number of frames. Its unit is one frame. A device that has spent too
// much is read more slowly. So is each device of a source whose devices together have spent too much.
const (
	bytesPerUnit  = 4 << 10 // of input
	unitsPerRead  = 0.25    // for each socket read: reading byte by byte is expensive
	unitsPerLabel = 10      // for each label added or removed, which the store writes
	unitsPerStray = 10      // for an answer to a call that is not open, which the store looks up
	unitsPerStore = 10      // for a frame that reads or changes the store
	unitsPerTool  = 0.25    // for each tool of a list that has changed, which is hashed and written, and of a frame
	unitsPerValue = 0.02    // for each JSON value of a frame, such as a name, which takes as long as 80 bytes of text
	fewValues     = 256     // bytes up to which a frame's values cost nothing more

	// The burst of a session: multiples of the frame burst, and of the largest message. Its rate allows one such
	// message a second besides the frames. A message is charged before its type is known.
	workBurst    = 2
	largestBurst = 4

	// The limit of a source, in multiples of a session's frame limit.
	sourceRate  = 16
	sourceBurst = 16

	// The minimum for each session, whatever other sessions of its source do.
	floorRate  = 10
	floorBurst = 100

	maxPause = time.Second // for one socket read
)

// Each label is written to a separate index, so label changes have a limit besides work.
const (
	labelRate  = 1   // a second
	labelBurst = 160 // enough to replace one set of labels and restore it
)

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

// Limits returns the limits for one device, not what remains of its rates.
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

// device identifies a budget. Another source with the same session id gets another budget, so it cannot spend the real
// device's.
type device struct {
	key    registry.Key
	source netip.Prefix
}

// deviceBudget holds the token buckets of a device. It outlives the device's connections, so reconnecting does not
// refill it. It is safe for concurrent use.
type deviceBudget struct {
	device device
	owner  *deviceBudgets

	// Guarded by the lock of deviceBudgets.
	users int           // connections that use it now
	since time.Duration // when the last connection stopped using it
	idle  *list.Element // its place in deviceBudgets.idle; nil while it is in use

	mu                                       sync.Mutex
	frames, work, floor, definitions, labels auth.Bucket
	listings                                 auth.Bucket         // with the limit of definitions
	labelHashes                              map[uint64]struct{} // hashes of the device's current labels
}

func (a *deviceBudget) takeFrames(n int) bool {
	return a.take(&a.frames, a.owner.limits.frames, n)
}

// take takes n of a bucket. If fewer remain, it takes none and returns false.
func (a *deviceBudget) take(b *auth.Bucket, l auth.Limit, n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return b.Take(l, a.owner.now(), float64(n))
}

// hasFrames reports whether at least a tenth of the burst remains. It takes nothing.
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

func (a *deviceBudget) takeDefinitions(n int) bool {
	return a.take(&a.definitions, a.owner.limits.definitions, n)
}

func (a *deviceBudget) takeListing(n int) bool {
	return a.take(&a.listings, a.owner.limits.definitions, n)
}

// takeLabels takes the number of changes from the device's current labels to the given ones. If fewer remain, it takes
// none and returns false. A device that reconnects with the same labels changes nothing.
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
		a.spend(unitsPerLabel * float64(changes)) // delays the next read
	}
	return ok
}

// storeUnits returns the work of a frame for which the store is used.
func storeUnits(frame any) float64 {
	switch f := frame.(type) {
	case *connectFrame, *registerToolsFrame, *unregisterToolsFrame, *uploadRequestFrame, *approvalResponseFrame,
		*registerWakeFrame, *presenceFrame, *setDefaultFrame:
		return unitsPerStore
	case *toolResultFrame:
		units := 0.0
		for _, p := range f.result.Parts {
			if p.URL != "" { // an upload slot, which is looked up
				units += unitsPerStore
			}
		}
		return units
	default:
		return 0
	}
}

// spend takes units of work and returns how long to pause before the next read from the device.
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

// refund returns the cost of an answer to an open call, because the gateway asked for it.
func (a *deviceBudget) refund(frames int, units float64) {
	a.mu.Lock()
	a.frames.Refund(float64(frames))
	a.work.Refund(units)
	rest := a.floor.Refund(units) // a device that only sends answers never uses its source's share
	a.mu.Unlock()
	if rest > 0 {
		a.owner.sources.Refund(a.device.source, rest)
	}
}

const maxIdle = 1 << 16 // stored budgets of disconnected devices

// deviceBudgets holds the budgets of connected and recently disconnected devices. It is safe for concurrent use.
type deviceBudgets struct {
	limits  limits
	started time.Time
	seed    maphash.Seed
	sources *auth.Buckets[netip.Prefix]

	mu   sync.Mutex
	by   map[device]*deviceBudget
	idle list.List // *deviceBudget that no connection uses, oldest first
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

// acquire returns the budget of a device. The caller must call release once.
func (s *deviceBudgets) acquire(d device) *deviceBudget {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked()
	a := s.by[d]
	if a == nil {
		a = &deviceBudget{device: d, owner: s}
		s.by[d] = a
	}
	if a.users++; a.idle != nil {
		s.idle.Remove(a.idle)
		a.idle = nil
	}
	return a
}

// spent reports whether a device has spent nearly all its frames, so that it may not reconnect yet.
func (s *deviceBudgets) spent(d device) bool {
	s.mu.Lock()
	a := s.by[d]
	s.mu.Unlock()
	return a != nil && !a.hasFrames()
}

func (s *deviceBudgets) release(a *deviceBudget) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.users--; a.users == 0 {
		a.since, a.idle = s.now(), s.idle.PushBack(a)
	}
	s.forgetLocked()
}

// forgetLocked drops the budgets of devices that have been disconnected long enough to be full again, and the oldest
// ones when there are more than maxIdle.
func (s *deviceBudgets) forgetLocked() {
	l, now := &s.limits, s.now()
	longest := max(l.frames.Refill(), l.work.Refill(), l.definitions.Refill(), l.labels.Refill())
	for first := s.idle.Front(); first != nil; first = s.idle.Front() {
		a := first.Value.(*deviceBudget)
		if now-a.since < longest && s.idle.Len() <= maxIdle {
			return
		}
		s.idle.Remove(first)
		delete(s.by, a.device)
	}
}

// What the attributes of a session cost is in the memory of the pod and, with an index of each label, in the store. At
// their limits they cost more than the rest of the connection, so those beyond attributesFree share a pool. It has
// attributesMean for each connection that the pod may have.
const (
	attributesFree = 2 << 10
	attributesMean = 4 << 10

	labelCost      = 256 // bytes of a label besides its text
	capabilityCost = 16  // the same of a capability
)

// newAttributes returns the pool of attributes, which has the shares of the pool of connections.
func newAttributes(sockets int) *share.Pool { return newSockets(sockets * attributesMean) }

func attributeBytes(s *registry.Session) int64 {
	n := len(s.Name) + len(s.DeviceID) + len(s.DeviceName) + len(s.Platform)
	for k, v := range s.Labels {
		n += len(k) + len(v) + labelCost
	}
	for _, c := range s.Capabilities {
		n += len(c) + capabilityCost
	}
	return int64(n)
}

// attributes are what a connection holds of the pool. The zero value holds nothing. It is not safe for concurrent use.
type attributes struct {
	bytes  int64 // held, and attributesFree
	grants []*share.Grant
}

// hold takes what the attributes of a session need beyond what is held. It gives nothing back: what a device has had it
// may have again. The error is a *share.FullError.
func (a *attributes) hold(s *Server, who *auth.Identity, session *registry.Session) error {
	need := attributeBytes(session)
	more := need - max(a.bytes, attributesFree)
	if more <= 0 {
		return nil
	}
	grant, err := s.attributes.Try(owner(who, int64(s.cfg.MaxSockets)*attributesMean), more)
	if err != nil {
		return err
	}
	a.bytes, a.grants = need, append(a.grants, grant)
	return nil
}

func (a *attributes) release() {
	for _, g := range a.grants {
		g.Release()
	}
	a.grants = nil
}

// holdAttributes checks and holds the attributes that a session is about to get.
func (c *conn) holdAttributes(change func(*registry.Session)) error {
	s := c.local.Session()
	change(&s)
	if err := s.ValidateAttributes(); err != nil {
		return err
	}
	if c.attributes.hold(c.server, c.who, &s) != nil {
		return fields.NewError(codeRateLimited, tooManyAttributes+" Nothing was changed.")
	}
	return nil
}

const tooManyAttributes = "labels, capabilities: the devices of this identity or tenant have too many on this pod. " +
	"Use fewer or shorter ones."

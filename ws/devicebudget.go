package ws

import (
	"container/list"
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
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

// A credential that names its device can open sessions with any number of ids. All of them together have this many
// times the limits of one session.
const sessionsOfDevice = 4

type limits struct {
	frames, work, floor, definitions, labels auth.Limit
}

// times returns the limits of n sessions together.
func (l limits) times(n float64) limits {
	for _, one := range [...]*auth.Limit{&l.frames, &l.work, &l.floor, &l.definitions, &l.labels} {
		one.Rate, one.Burst = n*one.Rate, n*one.Burst
	}
	return l
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
// device's. The budget of all sessions of a holder has neither a session nor a source.
type device struct {
	key    registry.Key
	source netip.Prefix
	holder string
}

// deviceOf identifies the budget of a session.
func deviceOf(key registry.Key, source netip.Prefix) device { return device{key: key, source: source} }

// holderOf identifies the budget of all sessions of a device that its credential names. ok is false for other
// credentials: they may serve a fleet.
func holderOf(who *auth.Identity) (d device, ok bool) {
	return device{key: registry.Key{Tenant: who.Tenant}, holder: who.Holder()}, who.Device != ""
}

// budget is what a connection spends from: the budget of its session and, if its credential names the device, that of
// all sessions of the device. It is safe for concurrent use.
type budget struct {
	session *deviceBudget
	device  *deviceBudget // nil: none
}

// spender says whose limit was reached, for messages.
type spender string

const (
	noSpender   spender = ""
	thisSession spender = "this session"
	thisDevice  spender = "all sessions of this device"
)

// times returns n, which is a limit of a session, as the spender has it.
func (s spender) times(n int) int {
	if s == thisDevice {
		return sessionsOfDevice * n
	}
	return n
}

// take takes n of a bucket of each budget. If one has fewer, it takes none and returns whose it is.
func (b budget) take(of func(*deviceBudget) (*auth.Bucket, auth.Limit), n int) spender {
	if b.device != nil && !b.device.take(of, float64(n)) {
		return thisDevice
	}
	if b.session.take(of, float64(n)) {
		return noSpender
	}
	if b.device != nil {
		b.device.giveBack(of, float64(n))
	}
	return thisSession
}

func (b budget) takeFrames(n int) spender      { return b.take((*deviceBudget).frameBucket, n) }
func (b budget) takeDefinitions(n int) spender { return b.take((*deviceBudget).definitionBucket, n) }
func (b budget) takeListing(n int) spender     { return b.take((*deviceBudget).listingBucket, n) }

// takeLabels takes the number of changes from the session's current labels to the given ones, and makes these the
// current ones, in one step: connections of one session may race. If fewer remain, it takes none and returns whose they
// are. A device that reconnects with the same labels changes nothing.
func (b budget) takeLabels(labels map[string]string) spender {
	changes, full := b.changeLabels(b.session.hashesOf(labels))
	if full == noSpender {
		b.spend(unitsPerLabel * float64(changes)) // delays the next read
	}
	return full
}

// changeLabels is takeLabels without the work. The lock of the device's budget is taken while the session's is held.
func (b budget) changeLabels(hashes map[uint64]struct{}) (changes int, full spender) {
	a := b.session
	a.mu.Lock()
	defer a.mu.Unlock()
	changes = a.labelChangesLocked(hashes)
	if b.device != nil && !b.device.take((*deviceBudget).labelBucket, float64(changes)) {
		return changes, thisDevice
	}
	if !a.labels.Take(a.limits.labels, a.owner.now(), float64(changes)) {
		if b.device != nil {
			b.device.giveBack((*deviceBudget).labelBucket, float64(changes))
		}
		return changes, thisSession
	}
	a.labelHashes = hashes
	return changes, noSpender
}

// spend takes units of work and returns how long to pause before the next read from the device.
func (b budget) spend(units float64) time.Duration {
	pause, free := b.session.spend(units)
	if b.device != nil {
		wait, within := b.device.spend(units)
		pause, free = max(pause, wait), free && within
	}
	if free {
		return pause
	}
	return max(pause, b.session.owner.sources.Spend(b.session.device.source, units))
}

// refund returns the cost of an answer to an open call, because the gateway asked for it.
func (b budget) refund(frames int, units float64) {
	rest := b.session.refund(frames, units)
	if b.device != nil {
		rest = max(rest, b.device.refund(frames, units))
	}
	if rest > 0 {
		b.session.owner.sources.Refund(b.session.device.source, rest)
	}
}

// deviceBudget holds the token buckets of a session, or of a device with all its sessions. It outlives connections, so
// reconnecting does not refill it. It is safe for concurrent use.
type deviceBudget struct {
	device device
	owner  *deviceBudgets
	limits *limits

	// Guarded by the lock of deviceBudgets.
	users int           // connections that use it now
	since time.Duration // when the last connection stopped using it
	idle  *list.Element // its place in deviceBudgets.idle; nil while it is in use

	mu                                       sync.Mutex
	frames, work, floor, definitions, labels auth.Bucket
	listings                                 auth.Bucket         // with the limit of definitions
	labelHashes                              map[uint64]struct{} // hashes of the device's current labels
}

func (a *deviceBudget) frameBucket() (*auth.Bucket, auth.Limit) { return &a.frames, a.limits.frames }
func (a *deviceBudget) definitionBucket() (*auth.Bucket, auth.Limit) {
	return &a.definitions, a.limits.definitions
}
func (a *deviceBudget) listingBucket() (*auth.Bucket, auth.Limit) {
	return &a.listings, a.limits.definitions
}
func (a *deviceBudget) labelBucket() (*auth.Bucket, auth.Limit) { return &a.labels, a.limits.labels }

// take takes n of a bucket. If fewer remain, it takes none and returns false.
func (a *deviceBudget) take(of func(*deviceBudget) (*auth.Bucket, auth.Limit), n float64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	bucket, limit := of(a)
	return bucket.Take(limit, a.owner.now(), n)
}

// giveBack returns n to a bucket.
func (a *deviceBudget) giveBack(of func(*deviceBudget) (*auth.Bucket, auth.Limit), n float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	bucket, _ := of(a)
	bucket.Refund(n)
}

// hasFrames reports whether at least a tenth of the burst remains. It takes nothing.
func (a *deviceBudget) hasFrames() bool {
	least := a.limits.frames.Burst / 10
	if !a.take((*deviceBudget).frameBucket, least) {
		return false
	}
	a.giveBack((*deviceBudget).frameBucket, least)
	return true
}

func (a *deviceBudget) hashesOf(labels map[string]string) map[uint64]struct{} {
	hashes := make(map[uint64]struct{}, len(labels))
	for k, v := range labels {
		hashes[maphash.Comparable(a.owner.seed, [2]string{k, v})] = struct{}{}
	}
	return hashes
}

// labelChangesLocked returns how many labels differ from the session's current ones.
func (a *deviceBudget) labelChangesLocked(hashes map[uint64]struct{}) (changes int) {
	for h := range hashes {
		if _, unchanged := a.labelHashes[h]; !unchanged {
			changes++
		}
	}
	return changes + len(a.labelHashes) - (len(hashes) - changes)
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

// spend takes units of work. It returns how long to pause before the next read, and whether the work is within the
// minimum of the budget.
func (a *deviceBudget) spend(units float64) (pause time.Duration, within bool) {
	now := a.owner.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.work.Spend(a.limits.work, now, units), a.floor.Take(a.limits.floor, now, units)
}

// refund returns frames and work, and the part of the work that was not of the minimum: a device that only sends
// answers never uses its source's share.
func (a *deviceBudget) refund(frames int, units float64) (rest float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.frames.Refund(float64(frames))
	a.work.Refund(units)
	return a.floor.Refund(units)
}

const maxIdle = 1 << 16 // stored budgets of disconnected devices

// deviceBudgets holds the budgets of connected and recently disconnected devices. It is safe for concurrent use.
type deviceBudgets struct {
	limits  limits // of a session
	shared  limits // of all sessions of a device
	started time.Time
	seed    maphash.Seed
	sources *auth.Buckets[netip.Prefix]

	mu   sync.Mutex
	by   map[device]*deviceBudget
	idle list.List // *deviceBudget that no connection uses, oldest first
}

func newDeviceBudgets(l limits) *deviceBudgets {
	return &deviceBudgets{
		limits: l, shared: l.times(sessionsOfDevice), started: time.Now(), seed: maphash.MakeSeed(),
		by: make(map[device]*deviceBudget),
		sources: auth.NewBuckets[netip.Prefix](auth.Limit{
			Rate: sourceRate * l.frames.Rate, Burst: sourceBurst * l.frames.Burst,
		}),
	}
}

func (s *deviceBudgets) now() time.Duration { return time.Since(s.started) }

// acquire returns the budget of a connection. The caller must call release once.
func (s *deviceBudgets) acquire(key registry.Key, source netip.Prefix, who *auth.Identity) (b budget) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked()
	b.session = s.useLocked(deviceOf(key, source), &s.limits)
	if d, ok := holderOf(who); ok {
		b.device = s.useLocked(d, &s.shared)
	}
	return b
}

func (s *deviceBudgets) useLocked(d device, l *limits) *deviceBudget {
	a := s.by[d]
	if a == nil {
		a = &deviceBudget{device: d, owner: s, limits: l}
		s.by[d] = a
	}
	if a.users++; a.idle != nil {
		s.idle.Remove(a.idle)
		a.idle = nil
	}
	return a
}

// spent returns whether a session, or its device, has spent nearly all its frames, so that it may not reconnect yet.
func (s *deviceBudgets) spent(key registry.Key, source netip.Prefix, who *auth.Identity) spender {
	s.mu.Lock()
	session, shared := s.by[deviceOf(key, source)], (*deviceBudget)(nil)
	if d, ok := holderOf(who); ok {
		shared = s.by[d]
	}
	s.mu.Unlock()
	switch {
	case session != nil && !session.hasFrames():
		return thisSession
	case shared != nil && !shared.hasFrames():
		return thisDevice
	}
	return noSpender
}

func (s *deviceBudgets) release(b budget) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaveLocked(b.session)
	if b.device != nil {
		s.leaveLocked(b.device)
	}
	s.forgetLocked()
}

func (s *deviceBudgets) leaveLocked(a *deviceBudget) {
	if a.users--; a.users == 0 {
		a.since, a.idle = s.now(), s.idle.PushBack(a)
	}
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

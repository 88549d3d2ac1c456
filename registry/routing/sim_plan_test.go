package routing_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Sizes of a run.
const (
	simPods    = 3
	simDevices = 4
	simTenant  = "t"
)

// stepKind is what a step of a plan does.
type stepKind string

const (
	stepCall   stepKind = "call"
	stepKill   stepKind = "kill"   // a pod, which is started anew later
	stepStop   stepKind = "stop"   // a pod stands still for a while, and goes on with what it believed
	stepDrain  stepKind = "drain"  // a pod, which is started anew later
	stepDrop   stepKind = "drop"   // the connection of a device
	stepLeave  stepKind = "leave"  // a device goes away for a while
	stepMove   stepKind = "move"   // a device connects elsewhere before it closes its connection
	stepRival  stepKind = "rival"  // another device asks for the session of a device
	stepUpdate stepKind = "update" // a device registers its tools anew, with other definitions
	stepNet    stepKind = "net"    // messages between pods are lost, late, doubled, out of order for a while
	stepAway   stepKind = "away"   // the store, and the bus with it
	stepFreeze stepKind = "freeze" // the store takes commands, and carries them out when it is back
	stepSlow   stepKind = "slow"   // the store
	stepUnsure stepKind = "unsure" // answers of the store are lost, whether or not the write took effect
	stepEmpty  stepKind = "empty"  // the store
)

// faultKinds are the kinds of steps but calls.
var faultKinds = []stepKind{
	stepKill, stepStop, stepDrain, stepDrop, stepLeave, stepMove, stepRival, stepUpdate, stepNet, stepAway, stepFreeze,
	stepSlow, stepUnsure, stepEmpty,
}

// step is one thing that happens. Its number names it, and all that comes of it, also when other steps are left out.
type step struct {
	number int
	at     time.Duration
	kind   stepKind
	pod    int
	device int
	lasts  time.Duration
	call   callPlan
}

func (s step) String() string {
	what := ""
	switch s.kind {
	case stepCall:
		what = s.call.String()
	case stepKill, stepStop, stepDrain:
		what = fmt.Sprintf("pod %d, %v", s.pod, s.lasts)
	case stepDrop, stepLeave, stepMove, stepRival, stepUpdate:
		what = fmt.Sprintf("device %d, %v", s.device, s.lasts)
	case stepEmpty:
	default:
		what = fmt.Sprintf("for %v", s.lasts)
	}
	return fmt.Sprintf("%3d %12v %-6s %s", s.number, s.at, s.kind, what)
}

// callPlan is one request.
type callPlan struct {
	nonce        string
	shape        string
	pod, again   int // the pod that is asked; another one: for the repetition, the cancellation, the reading
	device, tool int
	timeout      time.Duration
	work         time.Duration // of the device
	later        time.Duration // until the repetition, the cancellation or the disconnect
	twice, fails bool          // the device answers twice; its tool fails
	reports      int
	named        bool // the target names the device, too
}

// Shapes of calls.
const (
	shapeSync         = "sync"
	shapeAsync        = "async"
	shapeKeyed        = "keyed"
	shapeCancelled    = "cancelled"      // while it is waited for
	shapeRevoked      = "revoked"        // asynchronous, and cancelled
	shapeDisconnected = "disconnected"   // its caller does not wait
	shapeShort        = "short"          // hardly any time
	shapeLong         = "long"           // longer than a lease
	shapeLongKey      = "long and keyed" // the same
)

var shapes = []string{
	shapeSync, shapeSync, shapeSync, shapeAsync, shapeKeyed, shapeKeyed, shapeCancelled, shapeRevoked,
	shapeDisconnected, shapeShort, shapeLong, shapeLongKey,
}

// keyed reports whether the request carries an idempotency key, durable whether its call has a record from the
// beginning.
func (c callPlan) keyed() bool { return c.shape == shapeKeyed || c.shape == shapeLongKey }

func (c callPlan) durable() bool {
	return c.keyed() || c.shape == shapeAsync || c.shape == shapeRevoked
}

func (c callPlan) String() string {
	return fmt.Sprintf("%s of device %d tool %d at pod %d (%d), %s, within %v, takes %v, later %v, "+
		"twice %v, fails %v, reports %d, named %v",
		c.shape, c.device, c.tool, c.pod, c.again, c.nonce, c.timeout, c.work, c.later,
		c.twice, c.fails, c.reports, c.named)
}

// newPlan returns what happens in the run of a seed. Each seed has a few kinds of faults only: what two of them do
// together shows best without the others.
func newPlan(seed uint64) []step {
	random := rand.New(rand.NewPCG(seed, 0x5eed))
	var faults []stepKind
	for _, k := range faultKinds {
		if random.IntN(4) == 0 {
			faults = append(faults, k)
		}
	}
	share := random.IntN(50) // of the steps, in percent
	if len(faults) == 0 {
		share = 0
	}
	plan := make([]step, 16+random.IntN(28))
	at := 2 * time.Second // until all devices are there
	for i := range plan {
		at += time.Duration(random.Int64N(int64(600 * time.Millisecond)))
		if random.IntN(4) == 0 {
			at -= min(at-2*time.Second, time.Duration(random.Int64N(int64(100*time.Millisecond))))
		}
		s := step{number: i, at: at, kind: stepCall, pod: random.IntN(simPods), device: random.IntN(simDevices)}
		s.lasts = time.Duration(random.Int64N(int64(4 * time.Second)))
		if random.IntN(5) == 0 {
			s.lasts *= 3
		}
		c := newCallPlan(random, i)
		if random.IntN(100) < share {
			s.kind = faults[random.IntN(len(faults))]
		} else {
			s.call = c
		}
		plan[i] = s
	}
	return plan
}

func newCallPlan(random *rand.Rand, number int) callPlan {
	upTo := func(limit time.Duration) time.Duration { return time.Duration(random.Int64N(int64(limit))) }
	c := callPlan{
		nonce: fmt.Sprintf("n%d", number), shape: shapes[random.IntN(len(shapes))],
		pod: random.IntN(simPods), again: random.IntN(simPods), device: random.IntN(simDevices),
		tool:    random.IntN(len(simTools)),
		timeout: 300*time.Millisecond + upTo(4*time.Second), work: upTo(200 * time.Millisecond),
		later: upTo(700 * time.Millisecond),
		twice: random.IntN(4) == 0, fails: random.IntN(8) == 0, reports: max(0, random.IntN(5)-2),
		named: random.IntN(4) == 0,
	}
	if random.IntN(3) == 0 {
		c.work = upTo(3 * time.Second)
	}
	if random.IntN(3) == 0 { // while the call is on its way
		c.later = upTo(10 * time.Millisecond)
	}
	switch c.shape {
	case shapeShort:
		c.timeout = time.Millisecond + upTo(250*time.Millisecond)
	case shapeLong, shapeLongKey:
		c.timeout, c.work = 11*time.Second+upTo(4*time.Second), upTo(13*time.Second)
	}
	return c
}

func describe(plan []step) string {
	lines := make([]string, len(plan))
	for i, s := range plan {
		lines[i] = s.String()
	}
	return strings.Join(lines, "\n")
}

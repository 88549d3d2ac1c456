package capacity

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func usual() Demand {
	return Demand{Devices: 1e6, Calls: 5e4, Payload: 2000, PodCores: 4, PodMemory: 8 << 30, Zones: 3}
}

func planOf(t *testing.T, d Demand) Plan {
	t.Helper()
	c, err := Measured()
	if err != nil {
		t.Fatal(err)
	}
	p, err := d.Plan(c)
	if err != nil {
		t.Fatalf("%+v: %v", d, err)
	}
	return p
}

// What is no number, zero where it must not be, negative, broken or huge is refused.
func TestDemandsAreChecked(t *testing.T) {
	fields := map[string]func(*Demand) *float64{
		"devices": func(d *Demand) *float64 { return &d.Devices },
		"calls":   func(d *Demand) *float64 { return &d.Calls },
		"payload": func(d *Demand) *float64 { return &d.Payload },
		"cores":   func(d *Demand) *float64 { return &d.PodCores },
		"memory":  func(d *Demand) *float64 { return &d.PodMemory },
		"zones":   func(d *Demand) *float64 { return &d.Zones },
	}
	for name, field := range fields {
		for _, n := range []float64{-1, math.NaN(), math.Inf(1), math.Inf(-1), 1e30, 0} {
			d := usual()
			*field(&d) = n
			free := n == 0 && (name == "calls" || name == "payload")
			if err := d.Check(); (err == nil) != free {
				t.Errorf("%s %v: %v", name, n, err)
			}
		}
	}
	for _, d := range []Demand{{Devices: 1.5}, {Devices: 1, Zones: 1.5}} {
		d.PodCores, d.PodMemory, d.Zones = 4, 8<<30, max(d.Zones, 1)
		if d.Check() == nil {
			t.Errorf("%+v passes", d)
		}
	}
	d := usual()
	d.Devices, d.Calls, d.Payload = 1, maxCalls, maxPayload
	if p, err := d.Plan(Constants{CallPod: 100, CallPodKB: 20, SessionPod: 1, ConnectPod: 1,
		ConnectRedis: 1}); err == nil {
		t.Errorf("a hundred million calls a second to one device: %+v", p)
	}
}

// Whatever is asked for: what is left when a zone or a pod is lost carries it, and more never needs less.
func TestPlansCarryTheirDemand(t *testing.T) {
	for range 500 {
		d := Demand{
			Devices: math.Ceil(math.Pow(10, rand.Float64()*8)), Calls: math.Pow(10, rand.Float64()*6),
			Payload: rand.Float64() * 1e5, PodCores: 1 + rand.Float64()*31,
			PodMemory: (1 + rand.Float64()*31) * (1 << 30), Zones: float64(1 + rand.IntN(5)),
		}
		c, err := Measured()
		if err != nil {
			t.Fatal(err)
		}
		p, err := d.Plan(c)
		if err != nil {
			continue // a device needs more than a cell
		}
		left, devices := float64(p.Pods)-d.lost(p.Pods), math.Ceil(d.Devices/float64(p.Cells))
		if left < 1 || p.Cores > busy*left*d.PodCores+1e-9 || devices > left*podSockets ||
			p.PodBytes > busy*d.PodMemory+1 ||
			math.Mod(float64(p.Pods), d.Zones) != 0 && d.Zones > 1 {
			t.Errorf("%+v: %d pods, of which %v are left, %v cores, %v bytes", d, p.Pods, left, p.Cores, p.PodBytes)
		}
		if p.RedisLoad > redisBusy+1e-9 || p.Pods > cellPods || p.Shards > cellShards || devices > cellDevices {
			t.Errorf("%+v: a cell of %v devices, %d pods, %d shards, %v busy", d, devices, p.Pods,
				p.Shards, p.RedisLoad)
		}
		if !slices.IsSortedFunc(p.BreaksFirst, func(a, b Limit) int { return int(math.Copysign(1, b.Used-a.Used)) }) {
			t.Errorf("%+v: %+v", d, p.BreaksFirst)
		}
		more := d
		more.Devices, more.Calls = 2*d.Devices, 2*d.Calls
		if m, err := more.Plan(c); err == nil && m.Cells*m.Pods < p.Cells*p.Pods {
			t.Errorf("%+v: %d pods in %d cells, and for twice as much %d in %d", d, p.Pods, p.Cells, m.Pods, m.Cells)
		}
	}
}

// What breaks first is what the demand is about.
func TestWhatBreaksFirst(t *testing.T) {
	for what, change := range map[string]func(*Demand){
		"the thread of each Redis master": func(*Demand) {},
		"the sockets of a pod":            func(d *Demand) { d.Devices, d.Calls = 250_000, 0 },
		"the memory of a pod":             func(d *Demand) { d.Devices, d.Calls, d.PodMemory = 250_000, 0, 1<<30 },
		"the cores of the pods":           func(d *Demand) { d.Devices, d.Calls, d.PodCores = 1000, 5000, 1 },
	} {
		d := usual()
		if change(&d); planOf(t, d).BreaksFirst[0].What != what {
			t.Errorf("%s: %+v", what, planOf(t, d).BreaksFirst)
		}
	}
}

// The storm that is computed with numbers of devices is that of each device by itself, at any size.
func TestStormIsThatOfEachDevice(t *testing.T) {
	const devices, perTick = 20_000, 100
	due := make(map[int][]int) // the levels of the devices that attempt in a tick
	pause := func(now, level int) {
		at := now + rand.IntN(int(min(firstWait<<level, longest)/tick))
		due[at] = append(due[at], level)
	}
	for range devices {
		pause(0, 0)
	}
	back, half, all := 0, 0.0, 0.0
	for now := 0; back < devices*999/1000; now++ {
		rand.Shuffle(len(due[now]), func(i, j int) { due[now][i], due[now][j] = due[now][j], due[now][i] })
		for i, level := range due[now] {
			if i < perTick {
				back++
			} else {
				pause(now+1, min(level+1, levels-1))
			}
		}
		all = float64(now+1) / 10
		if half == 0 && back >= devices/2 {
			half = all
		}
	}
	s := Storm{Devices: devices, PerSecond: 10 * perTick}
	s.run()
	if math.Abs(s.Half-half) > 0.05*half+0.2 || math.Abs(s.All-all) > 0.3*all {
		t.Errorf("half in %v and all in %v s, each by itself %v and %v s", s.Half, s.All, half, all)
	}
	for _, n := range []float64{1e4, 1e7} {
		like := Storm{Devices: n, PerSecond: n / 20}
		if like.run(); like.Half != s.Half || like.All != s.All || math.Abs(like.Refused-s.Refused) > 1e-6 {
			t.Errorf("%v devices: %+v, want as %+v", n, like, s)
		}
	}
	free := Storm{Devices: 1e6, PerSecond: 1e9}
	if free.run(); free.All > 0.5 || free.Refused != 0 {
		t.Errorf("with room for all: %+v", free)
	}
}

func TestConstantsMustBeMeasured(t *testing.T) {
	c, err := Measured()
	if err != nil || c.Machine == "" || c.Commit == "" || c.Date == "" {
		t.Errorf("%+v, %v", c, err)
	}
	c.ConnectRedis = 0
	if c.Check() == nil {
		t.Error("without the cost of a connection")
	}
	c.ConnectRedis, c.CallPodKB = 1, -1
	if c.Check() == nil {
		t.Error("larger payloads cost less")
	}
}

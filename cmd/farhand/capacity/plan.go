package capacity

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Demand is what a fleet must carry, and what its machines are.
type Demand struct {
	Devices   float64 `json:"devices"` // connected, idle but for the calls
	Calls     float64 `json:"calls_per_second"`
	Payload   float64 `json:"payload_bytes"` // of the arguments, and of the result
	PodCores  float64 `json:"pod_cores"`
	PodMemory float64 `json:"pod_memory_bytes"`
	Zones     float64 `json:"zones"` // one of them may be lost; with 1, one pod may
}

// Bounds of a Demand.
const (
	maxDevices = 1e9
	maxCalls   = 1e8
	maxPayload = 4 << 20 // FARHAND_MAX_OUTPUT
	maxCores   = 256
	minMemory  = 1 << 30
	maxMemory  = 4 << 40
	maxZones   = 16
)

// What is not measured by farhand-bench, with where it comes from.
const (
	busy        = 0.8       // of cores and memory, at most, when a zone or a pod is lost
	redisBusy   = 0.6       // of Redis' thread, at most: above it, calls wait for each other
	wideFrom    = 4         // from so many pods on,
	wide        = 1.43      // a call costs this much more: fewer travel together (docs/performance.md, fleet)
	refresh     = 20.0      // seconds between refreshes: a third of FARHAND_SESSION_TTL
	podSockets  = 100_000   // FARHAND_MAX_SOCKETS
	podBase     = 250 << 20 // bytes of a pod under load without sessions (docs/deploy.md)
	callRecords = 512 << 20 // FARHAND_CALL_BYTES: records of calls of one tenant in Redis
	hop         = 500.0     // bytes around a payload on each hop: headers, frames, TLS; estimated
	pings       = 200.0     // bytes of a ping and its answer, with their packets; estimated

	cellDevices = 1e6 // of a cell at most: a failure or a storm of a cell stays small
	cellPods    = 250 // GET /api/pods asks no more
	cellShards  = 32

	leastCluster = 3 // masters of a Redis Cluster
)

// Plan is what a demand needs. All but Cells and Whole is of one cell.
type Plan struct {
	Demand    Demand    `json:"demand"`
	Constants Constants `json:"constants"`

	Cells       int     `json:"cells"`
	Pods        int     `json:"pods"`
	Cores       float64 `json:"busy_cores"`         // of all pods on a usual day
	PodLoad     float64 `json:"pod_load"`           // share of a pod's cores on a usual day
	PodBytes    float64 `json:"pod_memory_bytes"`   // used by each, when a zone is lost
	Shards      int     `json:"redis_shards"`       // masters; each has a replica beside it
	RedisLoad   float64 `json:"redis_load"`         // share of each master's thread
	RedisBytes  float64 `json:"redis_memory_bytes"` // of all masters
	ClientBits  float64 `json:"client_bits_per_second"`
	PodBits     float64 `json:"pod_bits_per_second"` // all pods, both directions
	RedisBits   float64 `json:"redis_bits_per_second"`
	BreaksFirst []Limit `json:"breaks_first"` // the nearest limit first
	Storm       Storm   `json:"storm"`        // all devices of a cell come back
}

// Limit is how much of a resource is used on a usual day.
type Limit struct {
	What  string  `json:"what"`
	Used  float64 `json:"used"` // share of what it can carry
	Do    string  `json:"do"`
	Means string  `json:"means"` // what is used, in its own unit
}

// Check returns an error about what cannot be planned.
func (d Demand) Check() error {
	for _, of := range []struct {
		name        string
		n, min, max float64
	}{
		{"--devices", d.Devices, 1, maxDevices}, {"--calls-per-second", d.Calls, 0, maxCalls},
		{"--payload", d.Payload, 0, maxPayload}, {"--pod-cores", d.PodCores, 1, maxCores},
		{"--pod-memory", d.PodMemory, minMemory, maxMemory}, {"--zones", d.Zones, 1, maxZones},
	} {
		if !(of.n >= of.min && of.n <= of.max) { // also if it is no number
			return fmt.Errorf("%s: must be from %.0f to %.0f", of.name, of.min, of.max)
		}
	}
	if d.Devices != math.Trunc(d.Devices) || d.Zones != math.Trunc(d.Zones) {
		return errors.New("--devices and --zones: must be whole numbers")
	}
	return nil
}

// Plan returns what the demand needs with these costs.
func (d Demand) Plan(c Constants) (Plan, error) {
	if err := d.Check(); err != nil {
		return Plan{}, err
	}
	for cells := int(math.Ceil(d.Devices / cellDevices)); ; cells += max(cells/8, 1) {
		p := d.cell(c, float64(cells))
		if p.Pods <= cellPods && p.Shards <= cellShards {
			p.Cells = cells
			return p, nil
		}
		if float64(cells) > d.Devices {
			return Plan{}, errors.New("a device would need more than a cell: lower --calls-per-second or --payload, " +
				"or give pods more cores")
		}
	}
}

// cell plans one of some equal cells.
func (d Demand) cell(c Constants, cells float64) Plan {
	devices, calls, kb := math.Ceil(d.Devices/cells), d.Calls/cells, max(d.Payload-100, 0)/1000
	perCall := c.CallPod + kb*c.CallPodKB
	need := func(factor float64) float64 { return (calls*perCall*factor + devices/refresh*c.RefreshPod) / 1e6 }
	p := Plan{Demand: d, Constants: c, Cores: need(1)}
	p.Pods = d.pods(p.Cores, devices, c)
	if p.Pods > wideFrom {
		p.Cores = need(wide)
		p.Pods = d.pods(p.Cores, devices, c)
	}
	left := float64(p.Pods) - d.lost(p.Pods)
	p.PodLoad = p.Cores / float64(p.Pods) / d.PodCores
	p.PodBytes = podBase + devices*c.SessionPod/left

	threads := (calls*(c.CallRedis+kb*c.CallRedisKB) + devices/refresh*c.RefreshRedis) / 1e6
	p.Shards = max(int(math.Ceil(threads/redisBusy)), 1)
	if p.Shards > 1 {
		p.Shards = max(p.Shards, leastCluster)
	}
	p.RedisLoad = threads / float64(p.Shards)
	p.RedisBytes = devices*c.SessionRedis + callRecords

	each := 8 * (d.Payload + hop) * calls // bits of all payloads in one direction of one hop
	idle := 8 * pings * devices / refresh
	p.ClientBits, p.RedisBits = 4*each+idle, 4*each // callers and devices; both pods, there and back
	p.PodBits = p.ClientBits + p.RedisBits
	p.BreaksFirst = p.limits(devices)
	p.Storm = p.reconnect(devices)
	return p
}

// pods returns how many pods are needed, so that those that are left after a loss carry everything.
func (d Demand) pods(cores, devices float64, c Constants) int {
	left := slices.Max([]float64{
		cores / (busy * d.PodCores), devices / podSockets, devices * c.SessionPod / (busy*d.PodMemory - podBase), 1,
	})
	if d.Zones == 1 {
		return int(math.Ceil(left)) + 1
	}
	return int(math.Ceil(math.Ceil(left)/(d.Zones-1)) * d.Zones)
}

// lost returns how many pods are lost at once.
func (d Demand) lost(pods int) float64 {
	if d.Zones == 1 {
		return 1
	}
	return float64(pods) / d.Zones
}

// limits returns the resources of a cell, the one that is nearest to its limit first.
func (p Plan) limits(devices float64) []Limit {
	pods := float64(p.Pods)
	percent := func(f float64) string { return fmt.Sprintf("%.0f %%", 100*f) }
	all := []Limit{
		{"the thread of each Redis master", p.RedisLoad / redisBusy, "add shards", percent(p.RedisLoad)},
		{"the cores of the pods", p.PodLoad / busy, "add pods", percent(p.PodLoad)},
		{"the memory of a pod", (podBase + devices/pods*p.Constants.SessionPod) / (busy * p.Demand.PodMemory),
			"add pods",
			fmt.Sprintf("%.1f GB", (podBase+devices/pods*p.Constants.SessionPod)/1e9)},
		{"the sockets of a pod", devices / pods / podSockets, "add pods, or raise FARHAND_MAX_SOCKETS and ulimit -n",
			fmt.Sprintf("%.0f", devices/pods)},
	}
	slices.SortStableFunc(all, func(a, b Limit) int { return cmp.Compare(b.Used, a.Used) })
	return all
}

// What bounds how fast devices come back, beside cores.
const (
	tenantOpens = 250.0  // a second at a pod: a quarter of FARHAND_OPEN_RATE, for each tenant
	tenantSlot  = 2500.0 // a second: one tenant's directory is in one slot of a Cluster (docs/performance.md)
)

// reconnect simulates that all devices of the cell lose their connections at once, as one tenant's.
func (p Plan) reconnect(devices float64) Storm {
	free := float64(p.Pods)*p.Demand.PodCores*busy - p.Cores
	bounds := map[string]float64{
		"the cores of the pods": free * 1e6 / p.Constants.ConnectPod,
		"the threads of Redis":  float64(p.Shards) * max(busy-p.RedisLoad, 0.1) * 1e6 / p.Constants.ConnectRedis,
		"FARHAND_OPEN_RATE":     float64(p.Pods) * tenantOpens,
	}
	if p.Shards > 1 {
		bounds["the tenant's slot in the Cluster"] = tenantSlot
	}
	s := Storm{Devices: devices, PerSecond: math.MaxFloat64}
	for what, rate := range bounds {
		if rate < s.PerSecond {
			s.PerSecond, s.Bound = rate, what
		}
	}
	s.run()
	return s
}

// Storm is what happens when devices come back at once, as the SDKs do: after a pause by chance of up to 0.5 s, and of
// up to twice the last one's bound after each refusal, 30 s at most. Refusals cost nothing here.
type Storm struct {
	Devices   float64 `json:"devices"`
	PerSecond float64 `json:"accepted_per_second"`
	Bound     string  `json:"bound"`         // what limits that
	Half      float64 `json:"half_seconds"`  // until half of the devices are back
	All       float64 `json:"all_seconds"`   // until 99.9 % are
	Peak      float64 `json:"peak_attempts"` // in one second
	Refused   float64 `json:"refused_each"`  // attempts of a device that are refused, on average
}

const (
	tick      = 100 * time.Millisecond
	firstWait = 500 * time.Millisecond
	longest   = 30 * time.Second
	levels    = 7 // of pauses: 0.5, 1, 2, 4, 8, 16, 30 s
	maxTicks  = 1 << 20
)

// run simulates the attempts of each tick. Devices of one level of pauses are alike, so it computes with their number,
// not with each: ten million take as long as ten.
func (s *Storm) run() {
	const second = int(time.Second / tick)
	var due [levels][]float64 // attempts that come in a tick, by how long the pause before was
	add := func(level, from int, n float64) {
		ticks := int(min(firstWait<<level, longest) / tick)
		for len(due[level]) <= from+ticks {
			due[level] = append(due[level], 0)
		}
		for i := range ticks {
			due[level][from+i] += n / float64(ticks)
		}
	}
	add(0, 0, s.Devices)
	var back, refused, inSecond float64
	for now := 0; now < maxTicks && back < 0.999*s.Devices; now++ {
		var attempts float64
		for level := range due {
			if now < len(due[level]) {
				attempts += due[level][now]
			}
		}
		taken := min(attempts, s.PerSecond/float64(second))
		for level := range due {
			if now < len(due[level]) && attempts > 0 {
				if n := due[level][now] * (1 - taken/attempts); n > 0 {
					add(min(level+1, levels-1), now+1, n)
				}
			}
		}
		if now%second == 0 {
			inSecond = 0
		}
		back, refused, inSecond = back+taken, refused+attempts-taken, inSecond+attempts
		s.Peak = max(s.Peak, inSecond)
		if s.Half == 0 && back >= s.Devices/2 {
			s.Half = float64(now+1) / float64(second)
		}
		s.All = float64(now+1) / float64(second)
	}
	s.Refused = refused / s.Devices
}

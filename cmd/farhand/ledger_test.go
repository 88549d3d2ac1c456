package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
)

var (
	ledgerTime = flag.Duration("ledger", time.Minute, "how long TestLedger keeps the load and the faults up, in all")
	ledgerOver = flag.Bool("failover", false, "have TestLedger also run over failovers of Redis")
	ledgerSeed = flag.Uint64("seed", 0, "seed of TestLedger; 0 draws one")
)

const (
	ledgerDevices = 12
	ledgerCallers = 16
	ledgerPods    = 3

	ledgerShown = 10 // violations that are told with their history

	ledgerConfirms = "FARHAND_REDIS_REPLICAS=1" // so that a failover neither loses nor repeats a call

	ledgerDecides = "FARHAND_ASYNC_APPROVAL_TIMEOUT=10s" // an approval that no decision reached ends soon
)

// TestLedger: devices write down every call that reaches them and every answer they give, callers all they ask and
// hear, in every shape a call can have, while pods are killed, stopped, drained, Redis is killed, frozen, cut off,
// slowed down and emptied, and devices lose their connections and come back elsewhere. Afterwards the books must agree.
// Each kind of Redis has an equal part of the time: one that forgets all when it is killed, one that remembers what it
// acknowledged, and, only with -failover, a primary with a replica under Sentinel.
func TestLedger(t *testing.T) {
	t.Parallel()
	seed := *ledgerSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d: go test ./cmd/farhand -run TestLedger -args -seed %d", seed, seed)
	part := *ledgerTime / 2
	if *ledgerOver {
		part = *ledgerTime / 3
	}
	// Records outlive their run and its audit, which reads each of them twice. They live no longer, because what a
	// tenant may store within that time is limited (FARHAND_CALL_BYTES).
	retention := fmt.Sprintf("FARHAND_RETENTION=%v", part+part/2+5*time.Minute)
	settings := func(t *testing.T) []string {
		return []string{redisFails, ledgerPolicy(t), retention, ledgerDecides}
	}
	t.Run("forgets", func(t *testing.T) {
		keepLedger(t, seed, part, startFaultFleet(t, ledgerPods, settings(t)...), false)
	})
	t.Run("remembers", func(t *testing.T) {
		server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
		keepLedger(t, seed, part, startFaultFleetOn(t, server, ledgerPods, settings(t)...), true)
	})
	if !*ledgerOver {
		return
	}
	t.Run("failover", func(t *testing.T) {
		keepLedger(t, seed, part, startFailoverFleet(t, ledgerPods, append(settings(t), ledgerConfirms)...), false)
	})
}

// keepLedger keeps the books of a fleet for that time, and judges them.
func keepLedger(t *testing.T, seed uint64, part time.Duration, f *faultFleet, keeps bool) {
	book := &ledger{events: make(map[string][]string), confirms: slices.Contains(f.settings, ledgerConfirms)}
	var devices []*ledgerDevice
	for i := range ledgerDevices {
		devices = append(devices, startLedgerDevice(t, book, i, seed, f.urls))
	}
	f.allListed(t, ledgerDevices, waitLimit)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * ledgerCallers}}
	defer client.CloseIdleConnections()

	ctx, cancel := context.WithTimeout(context.Background(), part)
	defer cancel()
	var busy sync.WaitGroup
	control := startControl(t)
	busy.Go(func() { control.measure(ctx, book) })
	for i := range ledgerCallers {
		c := &ledgerCaller{
			book: book, fleet: f, http: client, random: rand.New(rand.NewPCG(seed, uint64(1000+i))), devices: devices,
		}
		busy.Go(func() { c.run(ctx) })
	}
	chaos := &ledgerChaos{t: t, book: book, fleet: f, devices: devices, random: rand.New(rand.NewPCG(seed, 1)),
		keeps: keeps}
	chaos.run(ctx)
	busy.Wait()

	f.heal(t)
	f.allListed(t, ledgerDevices, waitLimit)
	for _, p := range f.pods {
		if a := callTool(t, p.url, "/api/sessions/device-0/tools/work/call", `{"args":{}}`); a.status != http.StatusOK {
			t.Errorf("after it all: %+v", a)
		}
	}
	book.settle(t, f.pods[0].url, client)
	for _, d := range devices {
		d.stop()
	}
	book.judge(t)
	f.stop(t)
}

// settle reads all records that are left, once nothing changes them any more, and the logs of some of the calls.
func (b *ledger) settle(t *testing.T, url string, client *http.Client) {
	ids := make(map[string]bool)
	for _, c := range b.asked {
		if c.CallID != "" {
			ids[c.CallID] = true
		}
	}
	b.mu.Lock()                   // devices may still get calls that waited
	for _, a := range b.arrived { // also those nobody heard the end of
		ids[a.callID] = true
	}
	b.mu.Unlock()
	waiting := make(map[string]bool)
	for _, c := range b.asked {
		waiting[c.CallID] = c.state == string(registry.StateQueued) || c.approval != ""
	}
	for range 2 { // who reads a record first may bring it to its end
		for _, id := range slices.Sorted(maps.Keys(ids)) {
			var r ledgerRecord
			eventually(t, waitLimit, "record "+id+" can be read, and a call that waited has ended", func() (ok bool) {
				var err error
				r, err = readLedgerRecord(client, http.MethodGet, url+"/api/calls/"+id, id)
				return err == nil && (!waiting[id] || r.missing || registry.State(r.state).Final())
			})
			r.last = true
			b.seen = append(b.seen, r)
		}
		waitBriefly(3 * time.Second) // more than what is late may take
	}
	for tried := 0; tried < min(600, len(b.asked)); tried++ { // the last ones: what is older may have been wiped
		c := b.asked[len(b.asked)-1-tried]
		if c.CallID == "" || c.status != http.StatusAccepted && c.key == "" && c.shape != "reports" {
			continue
		}
		if events := readLedgerEvents(t, client, url+"/api/calls/"+c.CallID+"/events"); len(events) > 0 {
			b.events[c.CallID] = events
		}
	}
}

// judge has the books audited and tells the figures.
func (b *ledger) judge(t *testing.T) {
	t.Helper()
	found := b.audit()
	rules, shown := make(map[string]int), make(map[string]int)
	for _, v := range found {
		rules[v.rule]++
		if shown[v.rule]++; shown[v.rule] <= 3 && len(shown) <= ledgerShown {
			t.Errorf("%s: %s\n%s", v.rule, v.text, b.history(v.callID, v.nonce))
		} else {
			t.Logf("%s: %s, call %s, nonce %s", v.rule, v.text, v.callID, v.nonce)
		}
	}
	if len(found) > 0 {
		t.Errorf("violations: %v", rules)
	}
	counts, succeeded := make(map[string]int), make(map[string]int)
	slowest := time.Duration(-1 << 62)
	var ofSlowest ledgerCall
	for _, c := range b.asked {
		name := c.shape + ": " + fmt.Sprint(c.status, " ", c.Code)
		if c.broken {
			name = c.shape + ": heard nothing"
		} else if over := c.heard.Sub(c.asked) - c.limit; over > slowest {
			slowest, ofSlowest = over, c
		}
		counts[name]++
		if c.status/100 == 2 {
			succeeded[c.shape]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%7d  %s", counts[name], name)
	}
	worst := time.Duration(0)
	for _, m := range b.control {
		worst = max(worst, m.took)
	}
	waited := 0
	for _, c := range b.asked {
		if c.state == string(registry.StateQueued) {
			waited++
		}
	}
	denied := 0
	for _, r := range b.ruled {
		if r.state == string(registry.ApprovalDenied) {
			denied++
		}
	}
	if t.Logf("%d calls waited for their devices, %d denials", waited, denied); waited == 0 || denied == 0 {
		t.Error("no call waited, or none was denied: that was no load")
	}
	t.Logf("%d calls, %d reached devices, %d records and %d logs read; the latest answer %v after its deadline, %v "+
		"allowed; the control took %v at worst; load %s",
		len(b.asked), len(b.arrived), len(b.seen), len(b.events), slowest.Round(time.Millisecond),
		(b.patienceOf(ofSlowest) - ofSlowest.limit).Round(time.Millisecond), worst.Round(time.Millisecond),
		machineLoad())
	if len(b.events) == 0 {
		t.Error("no log of a call was read")
	}
	for _, s := range ledgerShapes {
		if s.name != "too slow" && s.name != "hung up" && succeeded[s.name] == 0 {
			t.Errorf("no call of the shape %q succeeded: that was no load", s.name)
		}
	}
}

func machineLoad() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	load, _, _ := strings.Cut(string(text), " ")
	return load
}

// ledgerControlPod is a pod with its own device, without faults.
type ledgerControlPod struct{ url string }

func startControl(t *testing.T) ledgerControlPod {
	p := startPod(t)
	connectDevice(t, p.url, "control", echoTool())
	return ledgerControlPod{p.url}
}

// measure calls again and again, so that it is known how slow the machine is.
func (p ledgerControlPod) measure(ctx context.Context, b *ledger) {
	for ctx.Err() == nil {
		began := time.Now()
		req, err := http.NewRequest(http.MethodPost, p.url+"/api/sessions/control/tools/echo/call",
			strings.NewReader(`{"args":{}}`))
		if err != nil {
			panic(err)
		}
		req.Header.Set("Authorization", "Bearer "+fleetToken)
		req.Header.Set("Content-Type", "application/json")
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = json.NewDecoder(resp.Body).Decode(new(answer))
			resp.Body.Close()
		}
		add(b, &b.control, ledgerControl{time.Now(), time.Since(began)})
		waitFor(ctx, 50*time.Millisecond)
	}
}

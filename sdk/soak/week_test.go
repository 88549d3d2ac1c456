package soak_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/ws/client"
)

var week = flag.Duration("week", 0, "how long the seven days of TestWeek take; 0: it does nothing")

const (
	days         = 7
	weekDevices  = 12 // of the tenant that stays
	guestDevices = 4  // of each tenant that comes and goes
	guests       = 2  // their tenants; each comes back every second day
	flatFactor   = 1.3
)

// TestWeek is what happens to a fleet in a week, in minutes: each day two pods are replaced, a caller's key is rotated,
// the policy changes, devices connect anew, and another tenant comes with devices, calls and goes. A third pod stays:
// its heap, descriptors and goroutines, and the keys and memory of Redis, must be the same on the last day as on the
// third. All pods have the race detector.
func TestWeek(t *testing.T) {
	if *week == 0 {
		t.Log("a week has no length (-week), so there is nothing to do")
		return
	}
	w := newWeek(t)
	calling, end := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	defer callers.Wait()
	defer end()
	for i := range weekDevices {
		w.connect(t, calling, "default", w.fleet.token, fmt.Sprintf("stays-%d", i))
		callers.Go(func() { w.callUntil(t, calling, fmt.Sprintf("stays-%d", i)) })
	}
	var measured []usage
	for day := range days {
		w.day(t, day)
		measured = append(measured, w.measure(t))
		t.Logf("day %d, %d calls: %v", day+1, w.calls.Load(), measured[day])
	}
	end()
	callers.Wait()
	if w.calls.Load() == 0 {
		t.Error("no call was answered: that was no load")
	}
	compare(t, measured[2], measured[days-1])
}

// aWeek is the fleet of TestWeek.
type aWeek struct {
	fleet  *fleet
	rolled [2]*pod
	stays  *pod
	watch  string // address of the staying pod's metrics
	policy string // its file
	redis  *redis.Client

	key   atomic.Pointer[string] // of the callers
	keyID string
	calls atomic.Int64 // answered
}

func newWeek(t *testing.T) *aWeek {
	t.Helper()
	w := &aWeek{policy: filepath.Join(t.TempDir(), "policy.yaml"), watch: testkit.FreeAddr(t)}
	w.writePolicy(t, 0)
	program, url := buildFarhand(t), redistest.Single(t)
	settings := []string{
		"FARHAND_POLICY_FILE=" + w.policy, "FARHAND_RETENTION=5s", "FARHAND_SESSION_TTL=5s", "FARHAND_PING_INTERVAL=1s",
		"FARHAND_IDEMPOTENCY_TTL=5s", "FARHAND_ACTIVITY_CAP=500",
		"FARHAND_AUDIT_CAP=500", "FARHAND_AUDIT_BYTES=128KiB",
	}
	w.fleet, w.rolled = ownFleet(t, program, url, settings...)
	w.stays = &pod{
		program: program, name: "c", addr: testkit.FreeAddr(t),
		env: slices.Concat(w.rolled[0].env, []string{"FARHAND_METRICS_ADDR=" + w.watch, "FARHAND_PPROF=true"}),
	}
	w.stays.start(t)
	t.Cleanup(w.stays.end)
	w.fleet.url = startBalancer(t, w.rolled[0].addr, w.rolled[1].addr, w.stays.addr).url
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	w.redis = redis.NewClient(options)
	t.Cleanup(func() { w.redis.Close() })
	w.keyID = w.newKey(t, "default", "caller", func(key string) { w.key.Store(&key) })
	return w
}

// writePolicy makes the policy of a day. Each differs from the one before.
func (w *aWeek) writePolicy(t *testing.T, day int) {
	t.Helper()
	text := fmt.Sprintf("version: 1\ncalls:\n  - id: day-%d\n    deny: [never_%d]\n    reason: Day %d.\n", day, day,
		day)
	next := w.policy + ".next"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, w.policy); err != nil {
		t.Fatal(err)
	}
}

// day is one day.
func (w *aWeek) day(t *testing.T, day int) {
	t.Helper()
	length := *week / days
	evening := time.NewTimer(length * 3 / 4)
	defer evening.Stop()
	w.writePolicy(t, day+1)
	w.rotate(t)
	gone := w.visit(t, fmt.Sprintf("guest-%d", day%guests))
	for i, p := range w.rolled {
		if (day+i)%2 == 0 {
			p.end()
		} else {
			p.drain(t)
		}
		p.start(t)
	}
	<-evening.C
	gone()
	pause(length / 4) // what expires within retentions does
}

// rotate replaces the callers' key, and lets the former one work for a second.
func (w *aWeek) rotate(t *testing.T) {
	t.Helper()
	var rotated struct{ Key string }
	w.post(t, "/api/keys/"+w.keyID+"/rotate", map[string]any{"overlap": 1}, &rotated)
	w.key.Store(&rotated.Key)
}

// visit lets a tenant come: an admin's key, devices, calls. The returned function lets it go.
func (w *aWeek) visit(t *testing.T, tenant string) (gone func()) {
	t.Helper()
	var key string
	id := w.newKey(t, tenant, "admin", func(secret string) { key = secret })
	ctx, leave := context.WithCancel(t.Context())
	ended := make([]<-chan struct{}, guestDevices)
	for i := range guestDevices {
		name := fmt.Sprintf("%s-device-%d", tenant, i)
		ended[i] = w.connect(t, ctx, tenant, key, name)
		for range 20 {
			if status := w.call(t.Context(), name, key); status == http.StatusOK {
				w.calls.Add(1)
			}
		}
	}
	return func() {
		leave()
		for _, e := range ended {
			testkit.Receive(t, "a device of a tenant that goes", e)
		}
		w.request(t, http.MethodDelete, "/api/keys/"+id, key, nil, nil)
	}
}

// connect connects a device until ctx ends. The returned channel is closed when it has ended.
func (w *aWeek) connect(t *testing.T, ctx context.Context, tenant, token, name string) <-chan struct{} {
	t.Helper()
	device, err := client.New(w.fleet.url, client.WithToken(token), client.WithSession(name),
		client.WithDevice(name, "", "soak"), client.WithBackoff(20*time.Millisecond, time.Second),
		client.WithTool(client.Tool{Name: "echo", Description: "Repeats a text."},
			func(_ context.Context, call client.Call) (any, error) { return string(call.Args), nil }))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := device.Run(ctx); ctx.Err() == nil {
			t.Errorf("device %s of %s gave up: %v", name, tenant, err)
		}
	}()
	testkit.Receive(t, "the first registration of "+name, device.Ready())
	return ended
}

// callUntil calls a device, over each pod in turn, until ctx ends.
func (w *aWeek) callUntil(t *testing.T, ctx context.Context, device string) {
	t.Helper()
	for ctx.Err() == nil {
		switch status := w.call(ctx, device, *w.key.Load()); status {
		case http.StatusOK:
			w.calls.Add(1)
		case http.StatusUnauthorized, http.StatusForbidden:
			t.Errorf("a key that was rotated or a policy that changed refused a call: %d", status)
		}
		pause(20 * time.Millisecond)
	}
}

// call makes a call on any pod. It returns the status, zero if the pod was gone.
func (w *aWeek) call(ctx context.Context, device, key string) int {
	entries := slices.Concat(w.fleet.entries, []string{w.stays.url()})
	entry := entries[int(w.calls.Load())%len(entries)]
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, entry+"/api/sessions/"+device+"/tools/echo/call",
		strings.NewReader(`{"args":{"text":"day"},"timeout_ms":2000}`))
	if err != nil {
		return 0
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	resp, err := w.fleet.http.Do(r)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

func (w *aWeek) newKey(t *testing.T, tenant, role string, keep func(key string)) (id string) {
	t.Helper()
	var made struct{ ID, Key string }
	w.post(t, "/api/keys", map[string]any{"name": "week", "tenant": tenant, "roles": []string{role}}, &made)
	if made.Key == "" || made.ID == "" {
		t.Fatalf("a new key: %+v", made)
	}
	keep(made.Key)
	return made.ID
}

func (w *aWeek) post(t *testing.T, path string, body, into any) {
	t.Helper()
	w.request(t, http.MethodPost, path, w.fleet.token, body, into)
}

// request asks the staying pod, and fails the test unless it succeeds.
func (w *aWeek) request(t *testing.T, method, path, token string, body, into any) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequest(method, w.stays.url()+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := w.fleet.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		t.Fatalf("%s %s: %s %s (%v)", method, path, resp.Status, answer, err)
	}
	if into != nil {
		if err := json.Unmarshal(answer, into); err != nil {
			t.Fatal(err)
		}
	}
}

// usage is what the staying pod and Redis use.
type usage map[string]float64

func (u usage) String() string {
	return fmt.Sprintf("heap %.1f MB, %.0f descriptors, %.0f goroutines; Redis %.0f keys, %.2f MB", u["heap"]/1e6,
		u["descriptors"], u["goroutines"], u["keys"], u["redis"]/1e6)
}

// measure returns the least that is used in a few looks: a look may fall into a burst of calls.
func (w *aWeek) measure(t *testing.T) usage {
	t.Helper()
	least := usage{}
	for range 10 {
		for name, value := range w.look(t) {
			if was, ok := least[name]; !ok || value < was {
				least[name] = value
			}
		}
		pause(100 * time.Millisecond)
	}
	return least
}

func (w *aWeek) look(t *testing.T) usage {
	t.Helper()
	get := func(path string) string {
		resp, err := w.fleet.http.Get("http://" + w.watch + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s (%v)", path, resp.Status, err)
		}
		return string(text)
	}
	get("/debug/pprof/heap?gc=1") // so that the heap has no garbage
	metrics := get("/metrics")
	memory, err := w.redis.Info(t.Context(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	keys, err := w.redis.DBSize(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return usage{
		"heap":        numberAfter(t, metrics, "\ngo_memstats_heap_alloc_bytes "),
		"descriptors": numberAfter(t, metrics, "\nprocess_open_fds "),
		"goroutines":  numberAfter(t, metrics, "\ngo_goroutines "),
		"keys":        float64(keys),
		"redis":       numberAfter(t, memory, "used_memory:"),
	}
}

// numberAfter returns the number behind a name in a text of lines.
func numberAfter(t *testing.T, text, name string) float64 {
	t.Helper()
	_, rest, found := strings.Cut(text, name)
	line, _, _ := strings.Cut(rest, "\n")
	value, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
	if !found || err != nil {
		t.Fatalf("no number behind %q: %q", name, line)
	}
	return value
}

// compare fails the test for what the last day used more than an early one.
func compare(t *testing.T, early, last usage) {
	t.Helper()
	for name, was := range early {
		if now := last[name]; now > was*flatFactor {
			t.Errorf("%s grows: %.0f on the third day, %.0f on the last", name, was, now)
		}
	}
}

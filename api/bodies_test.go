package api_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
)

// long is a call whose body has nearly as many bytes.
func long(mode string, bytes int) request {
	return request{
		method: http.MethodPost, path: "/api/tools/t/call",
		body: `{"timeout_ms":20000,"mode":"` + mode + `","args":{"a":"` + strings.Repeat("a", bytes) + `"}}`,
	}
}

// The room of a long body is taken as long as its call waits, here for a person, and given up when the device has the
// call, whether or not it answers. Small calls need none.
func TestLongBodiesAreHeldUntilTheDeviceHasTheCall(t *testing.T) {
	f := newFleet(t, setup{change: func(c *api.Config) { withDeciders(c); c.MaxRequestBytes = 100_000 }})
	d := f.connect(0, ofAnn("phone"), silent, append(tools("t"), confirmable("camera_snap"))...)
	ctx, leave := context.WithCancel(t.Context())
	var calling sync.WaitGroup
	defer calling.Wait()
	defer leave()
	call := func(path, body string) {
		calling.Go(func() {
			_, _ = f.try(request{ctx: ctx, method: http.MethodPost, path: path, body: body, header: http.Header{
				"Authorization": {"Bearer agent"}, "Content-Type": {"application/json"},
			}})
		})
	}
	body := `{"args":{"a":"` + strings.Repeat("a", 60_000) + `"}}`
	call(snap, body)
	a := f.waiting("ann", 1)[0]
	if r := f.as("agent", long("sync", 60_000)); r.status != http.StatusTooManyRequests ||
		r.header.Get("Retry-After") == "" {
		t.Errorf("there was room: %d %s", r.status, r.body)
	}
	call("/api/tools/t/call", `{}`) // a small one
	d.delivered()
	decode[shownApproval](f.decide("ann", a.ID, allowOnce, 0), 200)
	if got := d.delivered(); got.Args.Len() < 60_000 {
		t.Errorf("delivered with %d bytes of arguments", got.Args.Len())
	}
	call("/api/tools/t/call", body)
	d.delivered()
}

// Calls of a megabyte that their device has and does not answer hold no room and no memory, on its pod or another one,
// by whatever route they came, whether or not they outlive their requests. Another tenant's long call passes.
func TestBodiesOfSilentCallsAreNotKept(t *testing.T) {
	rpc := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":%q},`+
		`"_meta":{"farhand/timeout_ms":60000}}}`, strings.Repeat("a", megabyte))
	sync, async := long("sync", megabyte), long("async", megabyte)
	keyed := func(n int) http.Header { return http.Header{"Idempotency-Key": {fmt.Sprint("key", n)}} }
	legacy := func(int) http.Header { return http.Header{"Mcp-Protocol-Version": {"2025-06-18"}} }
	kinds := []silentCalls{
		{"sync", sync.path, sync.body, nil}, {"async", async.path, async.body, nil},
		{"keyed", sync.path, sync.body, keyed}, {"MCP", "/mcp", rpc, legacy},
	}
	s := setup{pods: 2, change: func(c *api.Config) { withDeciders(c); c.MaxRequestBytes = 4 << 20 }}
	t.Run("memory", func(t *testing.T) { newFleet(t, s).callSilently(kinds...) })
	t.Run("redis", func(t *testing.T) {
		s := s
		s.redis = redistest.Single(t)
		newFleet(t, s).callSilently(kinds[0])
	})
}

const megabyte = 1_000_000

// silentCalls are long calls of one kind to a device that does not answer.
type silentCalls struct {
	kind, path, body string
	header           func(n int) http.Header // of the n-th call; nil: as usual
}

// callSilently makes long calls at each pod, and checks that nothing of them is kept.
func (f *fleet) callSilently(kinds ...silentCalls) {
	const calls = 4
	d := f.connect(0, session("s1"), silent, tools("t")...)
	n := 0
	for _, of := range kinds {
		body := strings.Replace(of.body, `"timeout_ms":20000`, `"timeout_ms":60000`, 1) // one for all: clients hold it
		for pod := range f.pods {
			ctx, leave := context.WithCancel(f.Context())
			var calling sync.WaitGroup
			before := heapBytes()
			for range calls {
				n++
				r := request{ctx: ctx, method: http.MethodPost, path: of.path, body: body, pod: pod}
				if of.header != nil {
					r.header = of.header(n)
				}
				calling.Go(func() { _, _ = f.try(r) })
				d.delivered()
			}
			f.eventually(fmt.Sprintf("no memory for %s at pod %d", of.kind, pod), func() bool {
				return heapBytes() < before+calls*megabyte/2
			})
			if n := d.local.InFlight(); n < calls {
				f.Errorf("%s at pod %d: %d calls wait for the device", of.kind, pod, n)
			}
			wantProblem(f.as("acme", long("sync", 900_000)), http.StatusNotFound, registry.CodeToolNotFound)
			leave()
			calling.Wait()
		}
	}
}

// heapBytes returns how many bytes are in use.
func heapBytes() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// What fails on its way gives its room up.
func TestRefusedBodiesAreNotHeld(t *testing.T) {
	f := newFleet(t, setup{change: func(c *api.Config) { c.MaxRequestBytes = 1 << 20 }})
	for _, r := range []request{
		long("sync", 900_000), long("async", 900_000), // no device
		{method: http.MethodPost, path: "/api/tools/t/call", body: "{" + strings.Repeat(" ", 900_000)},
		{method: http.MethodPost, path: "/api/sessions/s1/messages", body: `{"content":"` +
			strings.Repeat("a", 900_000) + `"}`},
		{method: http.MethodPost, path: "/v1/chat/completions", body: `{"x":"` + strings.Repeat("a", 900_000) + `"}`},
		{method: http.MethodPut, path: "/api/sessions/s1", body: `{"name":"` + strings.Repeat("a", 900_000) + `"}`},
	} {
		if got := f.send(r); got.status == http.StatusTooManyRequests || got.status < 400 {
			t.Errorf("%s %s: %d %.200s", r.method, r.path, got.status, got.body)
		}
	}
}

// A caller that announced a body and stopped sending makes room for one that sends.
func TestStalledBodiesMakeRoom(t *testing.T) {
	f := newFleet(t, setup{change: func(c *api.Config) { c.MaxRequestBytes = 1 << 20 }})
	f.connect(0, session("s1"), echo, tools("t")...)
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.pods[0].server.URL, "http://"))
	f.must(err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST /api/tools/t/call HTTP/1.1\r\nHost: pod\r\nAuthorization: Bearer %s\r\n"+
		"Content-Length: 1000000\r\nExpect: 100-continue\r\n\r\n", token)
	f.must(err)
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	stalled := bufio.NewReader(conn)
	line, err := stalled.ReadString('\n') // the room is taken, and the body wanted
	f.must(err)
	if !strings.Contains(line, "100") {
		t.Fatalf("the pod says %q", line)
	}
	if r := f.send(long("sync", 900_000)); r.status != http.StatusOK {
		t.Errorf("who sends: %d %.200s", r.status, r.body)
	}
	_, _ = stalled.ReadString('\n')
	if line, err := stalled.ReadString('\n'); !strings.Contains(line, "429") {
		t.Errorf("who stopped sending was told %q, %v", line, err)
	}
}

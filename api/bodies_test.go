package api_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/api"
)

// long is a call whose body has nearly as many bytes.
func long(mode string, bytes int) request {
	return request{
		method: http.MethodPost, path: "/api/tools/t/call",
		body: `{"timeout_ms":20000,"mode":"` + mode + `","args":{"a":"` + strings.Repeat("a", bytes) + `"}}`,
	}
}

// The room of a long body is taken as long as its call lasts, also one that outlives its request, and given up then.
// Small calls need none.
func TestLongBodiesAreHeld(t *testing.T) {
	for _, mode := range []string{"sync", "async"} {
		t.Run(mode, func(t *testing.T) {
			f := newFleet(t, setup{change: func(c *api.Config) { c.MaxRequestBytes = 1 << 20 }})
			answers, open := gate()
			d := f.connect(0, session("s1"), answers, tools("t")...)
			first := make(chan reply, 1)
			go func() {
				r, _ := f.try(long(mode, 900_000))
				first <- r
			}()
			d.delivered()
			if r := f.send(long("sync", 200_000)); r.status != http.StatusTooManyRequests ||
				r.header.Get("Retry-After") == "" {
				t.Errorf("there was room: %d %s", r.status, r.body)
			}
			small := make(chan reply, 1)
			go func() {
				r, _ := f.try(long("sync", 10_000))
				small <- r
			}()
			d.delivered()
			open()
			for _, answered := range []chan reply{first, small} {
				if r := await(t, "the answer", answered); r.status >= 300 {
					t.Errorf("%d %s", r.status, r.body)
				}
			}
			// whatever was refused or failed before, too
			if r := f.send(long("sync", 900_000)); r.status != http.StatusOK {
				t.Errorf("the room is not given up: %d %s", r.status, r.body)
			}
		})
	}
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

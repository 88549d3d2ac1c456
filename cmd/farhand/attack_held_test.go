package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Very many requests that wait for the end of a call which does not end.
func TestAttackHeldRequests(t *testing.T) {
	const waiting = 6000
	a := startAttacked(t, 1)
	url := a.pods[0].url
	conn := dialRaw(t, url, "mute")
	registerRaw(t, conn, []definition{{"work", []byte(`{}`)}})
	begun := callTool(t, url, "/api/sessions/mute/tools/work/call", `{"timeout_ms":60000,"mode":"async"}`)
	if begun.status != http.StatusAccepted {
		t.Fatalf("not begun: %+v", begun)
	}
	ask := fmt.Sprintf("GET /api/calls/%s?wait_ms=60000 HTTP/1.1\r\nHost: pod\r\nAuthorization: Bearer %s\r\n\r\n",
		begun.CallID, fleetToken)
	var connected atomic.Int64
	a.under(t, 12*time.Second, func(ctx context.Context) {
		var attackers sync.WaitGroup
		for range waiting {
			attackers.Go(func() {
				conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(url, "http://"))
				if err != nil {
					return
				}
				defer conn.Close()
				connected.Add(1)
				deadline, _ := ctx.Deadline()
				_ = conn.SetDeadline(deadline)
				_, _ = io.WriteString(conn, ask)
				_, _ = io.Copy(io.Discard, conn)
			})
		}
		attackers.Wait()
	})
	t.Logf("%d connections", connected.Load())
	a.peakBelow(t, 400)
	a.calmWithin(t, 2*time.Second)
}

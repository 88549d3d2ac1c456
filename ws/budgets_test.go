package ws_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/ws"
)

// What a device has spent it has spent: another connection gives it nothing back.
func TestReconnectingRefillsNothing(t *testing.T) {
	t.Parallel()
	t.Run("frames", func(t *testing.T) {
		t.Parallel()
		g := newGateway(t, func(c *ws.Config) { c.MaxFramesPerSecond, c.FrameBurst = 0.001, 20 })
		d := g.connect("again")
		for range 15 {
			d.send(`{"type":"abort"}`)
			d.expect("abort_ack")
		}
		must(t, d.conn.Close())
		g.waitReleased()
		d = g.connect("again")
		for range 8 {
			d.send(`{"type":"abort"}`)
		}
		d.expectClose(ws.CloseRate)
		other := g.connect("another")
		other.send(`{"type":"abort"}`)
		other.expect("abort_ack")
	})
	t.Run("definitions", func(t *testing.T) {
		t.Parallel()
		g := newGateway(t, func(c *ws.Config) {
			c.Admission = newAdmission(t, agent.AdmissionLimits{MaxToolBytes: 1 << 20})
		})
		for round := range 5 { // of 0.5 MB; at once 2 MiB are allowed
			d := g.connect("again")
			var all []string
			for i := range 10 {
				all = append(all, bigTool(fmt.Sprintf("tool_%d_%d", round, i), 50<<10))
			}
			_, rejected := d.register(all...)
			if round < 4 && len(rejected) > 0 || round == 4 && len(rejected) == 0 {
				t.Fatalf("round %d: %d rejected", round, len(rejected))
			}
			must(t, d.conn.Close())
			g.waitReleased()
		}
	})
	t.Run("labels", func(t *testing.T) {
		t.Parallel()
		g := newGateway(t)
		for round := range 9 {
			d := g.connect("again")
			var labels []string
			for i := range 32 {
				labels = append(labels, fmt.Sprintf(`"key-%d-%d":"x"`, max(round-5, 0), i)) // the same ones at first
			}
			d.send(`{"type":"connect","labels":{` + strings.Join(labels, ",") + `}}`)
			if round < 8 {
				d.expect("connected")
			} else {
				d.expectError("RATE_LIMITED", "labels")
			}
			must(t, d.conn.Close())
			g.waitReleased()
		}
	})
}

// A source that opens sessions too fast is refused before the upgrade, with the time to come back.
func TestOpensOfOneSourceAreLimited(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) { c.MaxOpensPerSecond, c.OpensBurst = 0.001, 3 })
	for i := range 3 {
		g.connect(fmt.Sprintf("early-%d", i))
	}
	status, problem, header := g.refusal("session_id=late&token="+testToken, nil)
	if status != http.StatusTooManyRequests || problem["code"] != "rate_limited" {
		t.Fatalf("refused with %d %v", status, problem)
	}
	if after, err := strconv.Atoi(header.Get("Retry-After")); err != nil || after < 1 || after > 10 {
		t.Fatalf("Retry-After: %q", header.Get("Retry-After"))
	}
	// A device without a token takes nothing from devices that have one.
	if status, _, _ := g.refusal("session_id=late&token=wrong", nil); status != http.StatusUnauthorized {
		t.Fatalf("refused with %d", status)
	}
}

// While the store is slow, so many sessions are opened at once and no more; devices that are connected are served.
func TestOpensAtOnceAreLimited(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	honest := g.connectWithTools("honest", "echo")
	release := make(chan struct{})
	var once sync.Once
	free := func() { once.Do(func() { close(release) }) }
	t.Cleanup(free)
	claim := func() error { <-release; return errors.New("away") }
	g.store.claim.Store(&claim)
	var dials sync.WaitGroup
	refused := make(chan string, 100)
	for i := range 40 {
		dials.Go(func() {
			conn, resp, err := websocket.DefaultDialer.Dial(g.url(fmt.Sprintf("session_id=crowd-%d&token=%s", i,
				testToken)), nil)
			if err == nil {
				_ = conn.Close()
				return
			}
			if resp != nil {
				refused <- fmt.Sprint(resp.StatusCode, resp.Header.Get("Retry-After") != "")
				resp.Body.Close()
			}
		})
	}
	dials.Wait()
	close(refused)
	n := 0
	for r := range refused {
		if n++; r != "429true" && r != "429 true" {
			t.Fatalf("refused with %s", r)
		}
	}
	if n != 8 {
		t.Fatalf("%d refused, want those over 32", n)
	}
	done := g.call("honest", "echo", `{}`)
	id := honest.expect("tool_call_request")["id"].(string)
	honest.send(`{"type":"tool_result","id":"` + id + `","output":"x"}`)
	must(t, await(t, done).err)
}

func TestWrongTokensAreLimited(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	var statuses []int
	for range 120 {
		status, _, header := g.refusal("token=guess", nil)
		statuses = append(statuses, status)
		if status == http.StatusTooManyRequests && header.Get("Retry-After") == "" {
			t.Fatal("no Retry-After")
		}
	}
	if statuses[0] != http.StatusUnauthorized || !slices.Contains(statuses, http.StatusTooManyRequests) {
		t.Fatalf("refused with %v", statuses)
	}
	g.connect("right").alive() // from the same address
}

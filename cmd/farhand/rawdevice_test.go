package main

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// rawDevice speaks the protocol by itself, so that nothing of our SDK stands between the gateway and what it counts:
// every tool_call_request it gets is one execution.
type rawDevice struct {
	t       testing.TB
	session string
	urls    []string // of the pods; it connects to any of them
	work    func(args json.RawMessage) string

	mu        sync.Mutex
	executed  map[string]int // by call id
	connected int            // how often it came back
	stopped   bool
	conn      *websocket.Conn
	done      sync.WaitGroup
}

// startRawDevice connects a device and keeps it connected until stop.
func startRawDevice(t testing.TB, session string, urls []string, work func(json.RawMessage) string) *rawDevice {
	d := &rawDevice{t: t, session: session, urls: urls, work: work, executed: make(map[string]int)}
	d.done.Go(d.run)
	t.Cleanup(d.stop)
	return d
}

func (d *rawDevice) stop() {
	d.mu.Lock()
	d.stopped = true
	if d.conn != nil {
		d.conn.Close()
	}
	d.mu.Unlock()
	d.done.Wait()
}

func (d *rawDevice) run() {
	for attempt := 0; ; attempt++ {
		d.mu.Lock()
		stopped := d.stopped
		d.mu.Unlock()
		if stopped { // or it would claim its session once more
			return
		}
		url := d.urls[rand.IntN(len(d.urls))]
		conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(url,
			"http")+"/ws/chat?session_id="+d.session,
			http.Header{"Authorization": {"Bearer " + fleetToken}})
		d.mu.Lock()
		if d.stopped {
			d.mu.Unlock()
			if err == nil {
				conn.Close()
			}
			return
		}
		d.conn = conn
		d.mu.Unlock()
		if err == nil {
			attempt = 0
			d.serve(conn)
		}
		pause := time.NewTimer(rand.N(100*time.Millisecond) + 20*time.Millisecond)
		<-pause.C
	}
}

// serve registers one tool and answers until the connection breaks.
func (d *rawDevice) serve(conn *websocket.Conn) {
	defer conn.Close()
	var write sync.Mutex
	send := func(v any) {
		write.Lock()
		defer write.Unlock()
		_ = conn.WriteJSON(v)
	}
	send(map[string]any{"type": "register_tools",
		"tools": []any{map[string]any{"name": "work", "description": "counts"}}})
	for {
		var f struct {
			Type string          `json:"type"`
			ID   string          `json:"id"`
			Args json.RawMessage `json:"args"`
		}
		if err := conn.ReadJSON(&f); err != nil {
			return
		}
		switch f.Type {
		case "tools_registered":
			d.mu.Lock()
			d.connected++
			d.mu.Unlock()
		case "tool_call_request":
			d.mu.Lock()
			d.executed[f.ID]++
			d.mu.Unlock()
			d.done.Go(func() {
				send(map[string]any{"type": "tool_result", "id": f.ID, "output": d.work(f.Args), "success": true})
			})
		}
	}
}

// executions returns how often each call was run.
func (d *rawDevice) executions() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make(map[string]int, len(d.executed))
	for id, n := range d.executed {
		all[id] = n
	}
	return all
}

package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// ledgerTools are the tools of every device of the ledger. It also has ledgerAsked.
var ledgerTools = []string{"work", "play"}

// ledgerAsked is the tool that needs an approval for each call.
const ledgerAsked = "pay"

// ledgerWork is what a call asks of a device.
type ledgerWork struct {
	Nonce   string `json:"nonce"`
	DelayMS int    `json:"delay_ms"`
	Reports int    `json:"reports"` // said on the way
	Twice   bool   `json:"twice"`   // answered twice, back to back
	Group   bool   `json:"group"`   // other devices are asked the same: each has a nonce of its own
}

// ledgerDevice speaks the protocol by itself and writes down what reaches it and what it answers. It comes back to any
// pod when it loses its connection. One that can resume keeps its answers until they are acknowledged.
type ledgerDevice struct {
	book    *ledger
	session string
	resumes bool
	urls    func() []string

	mu      sync.Mutex
	random  *rand.Rand
	conn    *websocket.Conn
	write   *sync.Mutex // of conn
	token   string
	unacked []map[string]any // answers, in order
	stopped bool
	awake   time.Time // not connected before
	done    sync.WaitGroup
}

func startLedgerDevice(t testing.TB, b *ledger, i int, seed uint64, urls func() []string) *ledgerDevice {
	d := &ledgerDevice{
		book: b, session: fmt.Sprintf("device-%d", i), resumes: i%2 == 0, urls: urls,
		random: rand.New(rand.NewPCG(seed, uint64(i))),
	}
	d.done.Go(d.run)
	t.Cleanup(d.stop)
	return d
}

func (d *ledgerDevice) stop() {
	d.mu.Lock()
	d.stopped = true
	if d.conn != nil {
		d.conn.Close()
	}
	d.mu.Unlock()
	d.done.Wait()
}

// drop cuts the connection, without a word. What is on its way to the device is lost.
func (d *ledgerDevice) drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn == nil {
		return
	}
	add(d.book, &d.book.drops, ledgerDrop{d.session, time.Now()})
	d.conn.NetConn().Close()
}

// sleep cuts the connection. The device comes back after a time.
func (d *ledgerDevice) sleep(length time.Duration) {
	d.mu.Lock()
	d.awake = time.Now().Add(length)
	d.mu.Unlock()
	d.drop()
}

func (d *ledgerDevice) sleeps() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Now().Before(d.awake)
}

// roll returns a number below n.
func (d *ledgerDevice) roll(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.random.IntN(n)
}

func (d *ledgerDevice) run() {
	for {
		d.mu.Lock()
		asleep, stopped := time.Until(d.awake), d.stopped
		d.mu.Unlock()
		if asleep > 0 && !stopped {
			waitBriefly(min(asleep, 100*time.Millisecond))
			continue
		}
		urls := d.urls()
		conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(urls[d.roll(len(urls))],
			"http")+"/ws/chat?session_id="+d.session,
			http.Header{"Authorization": {"Bearer " + fleetToken}})
		d.mu.Lock()
		stopped = d.stopped
		if err == nil && !stopped {
			d.conn, d.write = conn, &sync.Mutex{}
		}
		d.mu.Unlock()
		switch {
		case stopped:
			if err == nil {
				conn.Close()
			}
			return
		case err == nil:
			d.serve(conn)
		}
		waitBriefly(20*time.Millisecond + time.Duration(d.roll(100))*time.Millisecond)
	}
}

func waitBriefly(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// send writes to the connection there is.
func (d *ledgerDevice) send(frames ...any) {
	d.mu.Lock()
	conn, write := d.conn, d.write
	d.mu.Unlock()
	d.sendTo(conn, write, frames...)
}

func (d *ledgerDevice) sendTo(conn *websocket.Conn, write *sync.Mutex, frames ...any) {
	write.Lock()
	defer write.Unlock()
	for _, f := range frames {
		_ = conn.WriteJSON(f)
	}
}

type ledgerFrame struct {
	Type        string     `json:"type"`
	ID          string     `json:"id"`
	Name        string     `json:"name"`
	Args        ledgerWork `json:"args"`
	Ignored     bool       `json:"ignored"`
	ResumeToken string     `json:"resume_token"`
}

// serve introduces the device and answers until the connection breaks.
func (d *ledgerDevice) serve(conn *websocket.Conn) {
	defer conn.Close()
	var tools []any
	for _, name := range append([]string{ledgerAsked}, ledgerTools...) {
		tools = append(tools, map[string]any{"name": name, "description": "counts"})
	}
	for {
		var f ledgerFrame
		if err := conn.ReadJSON(&f); err != nil {
			return
		}
		switch f.Type {
		case "session_start":
			connect := map[string]any{
				"type": "connect", "device_id": d.session, "labels": map[string]string{"ledger": "yes"},
			}
			d.mu.Lock()
			if d.resumes {
				connect["capabilities"] = []string{"ack", "progress", "cancel", "resume", "resume_token"}
				if d.token != "" {
					connect["resume_token"] = d.token
				}
				d.token = f.ResumeToken
			}
			again, write := slices.Clone(d.unacked), d.write
			d.mu.Unlock()
			frames := []any{connect, map[string]any{"type": "register_tools", "tools": tools}}
			for _, a := range again {
				frames = append(frames, a)
			}
			d.sendTo(conn, write, frames...)
		case "tool_call_request":
			if f.Args.Group {
				f.Args.Nonce = groupNonce(f.Args.Nonce, d.session)
			}
			if f.Args.Nonce != "" {
				add(d.book, &d.book.arrived, ledgerArrival{f.ID, d.session, f.Name, f.Args.Nonce, time.Now()})
			}
			d.done.Go(func() { d.work(f) })
		case "result_acknowledged":
			add(d.book, &d.book.acks, ledgerAck{f.ID, f.Ignored, time.Now()})
			d.mu.Lock()
			if i := slices.IndexFunc(d.unacked, func(a map[string]any) bool { return a["id"] == f.ID }); i >= 0 {
				d.unacked = slices.Delete(d.unacked, i, i+1)
			}
			d.mu.Unlock()
		}
	}
}

// work runs a call.
func (d *ledgerDevice) work(f ledgerFrame) {
	if d.resumes {
		d.send(map[string]any{"type": "tool_call_accepted", "id": f.ID})
	}
	pause := time.Duration(f.Args.DelayMS) * time.Millisecond / time.Duration(f.Args.Reports+1)
	for i := range f.Args.Reports {
		waitBriefly(pause)
		if d.resumes {
			d.send(map[string]any{"type": "tool_progress", "id": f.ID, "progress": i, "message": f.Args.Nonce})
		}
	}
	waitBriefly(pause)
	var frames []any
	for turn := 1; turn == 1 || turn == 2 && f.Args.Twice; turn++ {
		output := ledgerOutput(f.Args.Nonce, d.session, f.Name, turn)
		frames = append(frames, map[string]any{"type": "tool_result", "id": f.ID, "output": output, "success": true})
		add(d.book, &d.book.answers, ledgerAnswer{f.ID, output, turn, time.Now()})
	}
	d.mu.Lock()
	if d.resumes {
		for _, a := range frames {
			d.unacked = append(d.unacked, a.(map[string]any))
		}
	}
	d.mu.Unlock()
	d.send(frames...)
}

// groupNonce is the nonce of one device's part of a group call.
func groupNonce(nonce, session string) string { return nonce + "@" + session }

// ledgerOutput is what a device answers. No two are alike.
func ledgerOutput(nonce, session, tool string, turn int) string {
	text, err := json.Marshal([]any{nonce, session, tool, turn})
	if err != nil {
		panic(err)
	}
	return string(text)
}

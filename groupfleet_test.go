package farhand_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore/redistest"
)

const groupToken = "a token of the tests of group calls"

// groupPods are pods on one Redis, and devices on them.
type groupPods struct {
	testing.TB
	urls  []string
	calls sync.Map // by device: *atomic.Int64, the calls it got
}

// newGroupPods starts two pods.
func newGroupPods(t testing.TB, change func(*farhand.Config), opts ...farhand.Option) *groupPods {
	t.Helper()
	p := &groupPods{TB: t}
	redis := redistest.Start(t)
	for range 2 {
		cfg := farhand.DefaultConfig()
		cfg.Token, cfg.RedisURL = groupToken, farhand.Secret(redis.URL())
		cfg.OpenBurst = 100_000
		if change != nil {
			change(&cfg)
		}
		p.urls = append(p.urls, start(t, cfg, opts...))
	}
	return p
}

const groupTools = `[{"name":"look","parameters":{"type":"object"}}]`

// groupDevice is a device that answers calls of one tool as told.
type groupDevice struct {
	id     string
	conn   *websocket.Conn
	mu     sync.Mutex // of writes
	called *atomic.Int64
}

// device connects a device to a pod. It offers the tool look, and answers with what answer returns; empty: never.
func (p *groupPods) device(pod int, id, labels string, answer func(d *groupDevice, call string) string) *groupDevice {
	p.Helper()
	return p.deviceOf(pod, id, labels, groupToken, groupTools, answer)
}

func (p *groupPods) deviceOf(
	pod int, id, labels, token, tools string, answer func(d *groupDevice, call string) string,
) *groupDevice {
	p.Helper()
	d, err := p.connected(pod, id, labels, token, tools, answer)
	if err != nil {
		p.Fatalf("%s: %v", id, err)
	}
	return d
}

// connected connects a device, again if a busy pod ends its connection before its tools are registered.
func (p *groupPods) connected(
	pod int, id, labels, token, tools string, answer func(d *groupDevice, call string) string,
) (*groupDevice, error) {
	ctx, cancel := context.WithTimeout(p.Context(), limit)
	defer cancel()
	for {
		d, err := p.connect(ctx, pod, id, labels, token, tools, answer)
		if err == nil || ctx.Err() != nil {
			return d, err
		}
	}
}

func (p *groupPods) connect(
	ctx context.Context, pod int, id, labels, token, tools string, answer func(d *groupDevice, call string) string,
) (*groupDevice, error) {
	conn, _, err := websocket.DefaultDialer.DialContext(ctx,
		"ws"+strings.TrimPrefix(p.urls[pod], "http")+"/ws/chat?session_id="+id,
		http.Header{"Authorization": {"Bearer " + token}})
	if err != nil {
		return nil, err
	}
	d := &groupDevice{id: id, conn: conn, called: new(atomic.Int64)}
	p.calls.Store(id, d.called)
	d.write(`{"type":"connect","v":1,"device_id":"d-` + id + `","labels":` + labels + `}`)
	d.write(`{"type":"register_tools","tools":` + tools + `}`)
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- d.serve(ready, answer) }()
	select {
	case <-ready:
		p.Cleanup(func() {
			conn.Close()
			<-done
		})
		return d, nil
	case err := <-done:
		conn.Close()
		return nil, err
	}
}

// serve answers calls until the connection ends. It closes ready when the tools are registered.
func (d *groupDevice) serve(ready chan<- struct{}, answer func(d *groupDevice, call string) string) error {
	for {
		_, text, err := d.conn.ReadMessage()
		if err != nil {
			return err
		}
		var f struct{ Type, ID string }
		if json.Unmarshal(text, &f) != nil {
			continue
		}
		switch f.Type {
		case "tools_registered":
			close(ready)
		case "tool_call_request":
			d.called.Add(1)
			if said := answer(d, f.ID); said != "" {
				d.answer(f.ID, said)
			}
		}
	}
}

func (d *groupDevice) write(frame string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.conn.WriteMessage(websocket.TextMessage, []byte(frame)) // it may be gone
}

// answer answers a call: "!" makes it fail.
func (d *groupDevice) answer(call, said string) {
	if said == "!" {
		d.write(`{"type":"tool_result","id":"` + call + `","success":false,"error":"broken"}`)
		return
	}
	d.write(`{"type":"tool_result","id":"` + call + `","output":"` + said + `"}`)
}

// says returns an answer that is always the same.
func says(text string) func(*groupDevice, string) string {
	return func(*groupDevice, string) string { return text }
}

// groupRow is a row of an answer.
type groupRow struct {
	Type      string
	CallID    string `json:"call_id"`
	SessionID string `json:"session_id"`
	DeviceID  string `json:"device_id"`
	State     string
	Success   *bool
	Output    string
	Place     int
	Expires   string `json:"expires_at"`
	Problem   *struct{ Code, Detail string }
}

type groupCounts struct{ Devices, Succeeded, Failed, Cancelled, Queued, Skipped int }

// groupTable is the answer to a group call.
type groupTable struct {
	CallID  string `json:"call_id"`
	Mode    string
	State   string
	Results []groupRow
	Counts  groupCounts
	Error   string
	Problem *struct{ Code, Detail string }
	Code    string // of a problem document
	Detail  string
}

func (g *groupTable) states() map[string]string {
	states := make(map[string]string)
	for _, r := range g.Results {
		states[r.SessionID] = r.State
	}
	return states
}

// request sends a request with a token, and returns the answer, whose body must be closed.
func (p *groupPods) request(
	ctx context.Context, pod int, method, path, body, token string, header ...string,
) *http.Response {
	p.Helper()
	req, err := http.NewRequestWithContext(ctx, method, p.urls[pod]+path, strings.NewReader(body))
	if err != nil {
		p.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.Fatal(err)
	}
	return resp
}

// call makes a group call and returns its table.
func (p *groupPods) call(pod int, body string, header ...string) (int, groupTable) {
	p.Helper()
	return p.callAs(pod, groupToken, body, header...)
}

func (p *groupPods) callAs(pod int, token, body string, header ...string) (int, groupTable) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), limit)
	defer cancel()
	resp := p.request(ctx, pod, http.MethodPost, "/api/calls", body, token, header...)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.Fatal(err)
	}
	var table groupTable
	if err := json.Unmarshal(text, &table); err != nil {
		p.Fatalf("%v: %s", err, text)
	}
	return resp.StatusCode, table
}

// groupRecord is the record of a call.
type groupRecord struct {
	CallID   string `json:"call_id"`
	ParentID string `json:"parent_id"`
	Tool     string
	Mode     string
	State    string
	Counts   *groupCounts
}

// get reads a JSON document.
func (p *groupPods) get(pod int, path string, into any) {
	p.Helper()
	resp := p.request(p.Context(), pod, http.MethodGet, path, "", groupToken)
	defer resp.Body.Close()
	var text bytes.Buffer
	if _, err := io.Copy(&text, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		p.Fatalf("%s: %d %v %s", path, resp.StatusCode, err, text.Bytes())
	}
	if err := json.Unmarshal(text.Bytes(), into); err != nil {
		p.Fatal(err)
	}
}

// crowd connects devices c-0, c-1, … to both pods, which answer "ok".
func (p *groupPods) crowd(n int, labels string) {
	p.Helper()
	ids := make(chan int)
	var connecting sync.WaitGroup
	for range 16 {
		connecting.Go(func() {
			for i := range ids {
				id := fmt.Sprintf("c-%d", i)
				if _, err := p.connected(i%len(p.urls), id, labels, groupToken, groupTools, says("ok")); err != nil {
					p.Errorf("%s: %v", id, err)
				}
			}
		})
	}
	for i := range n {
		ids <- i
	}
	close(ids)
	connecting.Wait()
}

// called returns how many calls a device got.
func (p *groupPods) called(id string) int64 {
	n, _ := p.calls.Load(id)
	return n.(*atomic.Int64).Load()
}

// wantState waits until the record of a call has a state, on the second pod.
func (p *groupPods) wantState(call, state string) {
	p.Helper()
	var rec groupRecord
	testkit.Eventually(p.TB, "the state "+state+" of "+call, func() bool {
		resp := p.request(p.Context(), 1, http.MethodGet, "/api/calls/"+call+"?wait_ms=1000", "", groupToken)
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK && json.NewDecoder(resp.Body).Decode(&rec) == nil && rec.State == state
	})
}

package farhand_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore/redistest"
)

// queuePods are two pods on one Redis, for calls to devices that sleep.
type queuePods struct {
	*testing.T
	a, b string // URLs
}

func newQueuePods(t *testing.T, change func(*farhand.Config)) queuePods {
	t.Helper()
	redis := redistest.Start(t)
	cfg := farhand.Config{Token: adminToken, RedisURL: farhand.Secret("redis://" + redis.Addr())}
	if change != nil {
		change(&cfg)
	}
	return queuePods{t, start(t, cfg), start(t, cfg)}
}

// phone is a device that wakes and sleeps. It answers each call with the arguments, if it answers.
type phone struct {
	*testing.T
	conn *websocket.Conn
	done chan struct{}

	mu    sync.Mutex
	calls []string // the arguments, in order
}

func (p *phone) seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.calls...)
}

// sleep disconnects.
func (p *phone) sleep() {
	p.conn.Close()
	<-p.done
}

const echoTools = `[{"name":"echo","description":"Echo","parameters":{"type":"object"}}]`

// wakePhone connects a device. With answers false it takes calls and never answers.
func wakePhone(t *testing.T, url, id, token, tools string, answers bool) *phone {
	t.Helper()
	conn := connect(t, url, id, token)
	p := &phone{T: t, conn: conn, done: make(chan struct{})}
	for _, frame := range []string{
		`{"type":"connect","v":1,"device_id":"` + id + `"}`, `{"type":"register_tools","tools":` + tools + `}`,
	} {
		if err := conn.WriteMessage(websocket.TextMessage, []byte(frame)); err != nil {
			t.Fatal(err)
		}
	}
	registered := make(chan struct{})
	once := sync.OnceFunc(func() { close(registered) })
	t.Cleanup(p.sleep)
	go func() {
		defer close(p.done)
		for {
			_, text, err := conn.ReadMessage()
			if err != nil {
				return
			}
			var f struct {
				Type, ID string
				Args     json.RawMessage
			}
			if json.Unmarshal(text, &f) != nil {
				continue
			}
			switch f.Type {
			case "tools_registered":
				once()
			case "tool_call_request":
				p.mu.Lock()
				p.calls = append(p.calls, string(f.Args))
				p.mu.Unlock()
				if answers {
					answer := `{"type":"tool_result","id":"` + f.ID + `","output":` + string(f.Args) + `}`
					_ = conn.WriteMessage(websocket.TextMessage, []byte(answer))
				}
			}
		}
	}()
	select {
	case <-registered:
	case <-t.Context().Done():
		t.Fatal("not registered")
	}
	return p
}

// queuedCall is what the gateway says of a call.
type queuedCall struct {
	CallID  string `json:"call_id"`
	State   string
	Place   int
	Expires string `json:"expires_at"`
	Output  string
	Success bool
	Code    string
	Problem struct{ Code, Detail string }
}

// call makes a call to a device that may sleep. status is the expected one.
func (q queuePods) call(url, device, args, more, token string, status int) queuedCall {
	q.Helper()
	body := fmt.Sprintf(`{"args":%s,"target":{"device_id":%q},"queue":{"ttl_ms":600000}%s}`, args, device, more)
	got, text := send(q.T, url+"/api/tools/echo/call", body, token)
	var c queuedCall
	if err := json.Unmarshal([]byte(text), &c); err != nil || got != status {
		q.Fatalf("call: %d %s", got, text)
	}
	return c
}

// known waits until a device is remembered with its tools.
func (q queuePods) known(device string) {
	q.Helper()
	testkit.Eventually(q.T, "the device is remembered", func() bool {
		status, text := send(q.T, q.a+"/api/devices/"+device+"/queue", "", adminToken)
		return status == http.StatusOK && strings.Contains(text, "calls")
	})
}

// outcome waits for the end of a call.
func (q queuePods) outcome(url, callID string) queuedCall {
	q.Helper()
	return read[queuedCall](q.T, url+"/api/calls/"+callID+"?wait_ms=20000", "", adminToken)
}

func TestCallsWaitForASleepingDevice(t *testing.T) {
	q := newQueuePods(t, nil)
	wakePhone(t, q.a, "phone", adminToken, echoTools, true).sleep()
	q.known("phone")
	var ids []string
	for i := range 5 {
		pod := []string{q.a, q.b}[i%2]
		c := q.call(pod, "phone", fmt.Sprintf(`{"n":%d}`, i), "", adminToken, http.StatusAccepted)
		if c.State != "queued" || c.Place != i+1 || c.Expires == "" {
			t.Fatalf("call %d: %+v", i, c)
		}
		ids = append(ids, c.CallID)
	}
	if c := read[queuedCall](t, q.b+"/api/calls/"+ids[2], "", adminToken); c.State != "queued" || c.Place != 3 {
		t.Errorf("third: %+v", c)
	}
	phone := wakePhone(t, q.b, "phone", adminToken, echoTools, true)
	for i, id := range ids {
		if c := q.outcome(q.a, id); c.State != "succeeded" || c.Output != fmt.Sprintf(`{"n":%d}`, i) {
			t.Errorf("call %d: %+v", i, c)
		}
	}
	if got := strings.Join(phone.seen(), " "); got != `{"n":0} {"n":1} {"n":2} {"n":3} {"n":4}` {
		t.Errorf("order: %s", got)
	}
	q.call(q.a, "phone", `{"n":9}`, "", adminToken, http.StatusOK) // awake, and nothing waits
}

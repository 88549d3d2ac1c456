package farhand_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
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
	a, b  string // URLs
	redis *redistest.Server
}

func newQueuePods(t *testing.T, change func(*farhand.Config)) queuePods {
	t.Helper()
	redis := redistest.Start(t)
	cfg := farhand.Config{Token: adminToken, RedisURL: farhand.Secret("redis://" + redis.Addr())}
	if change != nil {
		change(&cfg)
	}
	return queuePods{t, start(t, cfg), start(t, cfg), redis}
}

// phone is a device that wakes and sleeps. It answers each call with the arguments, if it answers.
type phone struct {
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
func wakePhone(t testing.TB, url, id, token, tools string, answers bool) *phone {
	t.Helper()
	conn := connect(t, url, id, token)
	p := &phone{conn: conn, done: make(chan struct{})}
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

// asleep waits until a device that left is remembered with its tools. Until then a call may go to the old
// connection, and its outcome is lost with it.
func (q queuePods) asleep(device string) {
	q.Helper()
	testkit.Eventually(q.T, "the device sleeps", func() bool {
		status, text := send(q.T, q.a+"/api/sessions?presence=sleeping&device_id="+device, "", adminToken)
		return status == http.StatusOK && strings.Contains(text, `"`+device+`"`)
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
	q.asleep("phone")
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

// key creates an API key with the roles of a caller.
func (q queuePods) key(more string) (key, id string) {
	q.Helper()
	_, text := send(q.T, q.a+"/api/keys", `{"roles":["caller"]`+more+`}`, adminToken)
	var made struct{ Key, ID string }
	if err := json.Unmarshal([]byte(text), &made); err != nil || made.Key == "" {
		q.Fatal(text)
	}
	return made.Key, made.ID
}

// remove sends DELETE.
func (q queuePods) remove(url string) string {
	q.Helper()
	r, err := http.NewRequestWithContext(q.Context(), http.MethodDelete, url, nil)
	if err != nil {
		q.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		q.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode >= 300 {
		q.Fatalf("DELETE %s: %d %s", url, resp.StatusCode, text)
	}
	return string(text)
}

// slept makes a device known that sleeps.
func (q queuePods) slept(id, tools string) {
	q.Helper()
	wakePhone(q.T, q.a, id, adminToken, tools, true).sleep()
	q.asleep(id)
}

func TestAQueuedCallIsCancelledOrExpires(t *testing.T) {
	q := newQueuePods(t, nil)
	q.slept("phone", echoTools)
	kept := q.call(q.a, "phone", `{"n":1}`, "", adminToken, http.StatusAccepted)
	gone := q.call(q.a, "phone", `{"n":2}`, "", adminToken, http.StatusAccepted)
	_, text := send(t, q.a+"/api/tools/echo/call",
		`{"args":{"n":3},"target":{"device_id":"phone"},"queue":{"ttl_ms":1000}}`, adminToken)
	var short queuedCall
	if err := json.Unmarshal([]byte(text), &short); err != nil || short.State != "queued" || short.Place != 3 {
		t.Fatal(text)
	}
	if text := q.remove(q.b + "/api/calls/" + gone.CallID); !strings.Contains(text, `"cancelled"`) {
		t.Error(text)
	}
	if c := q.outcome(q.b, short.CallID); c.State != "expired" {
		t.Errorf("expired: %+v", c)
	}
	testkit.Eventually(t, "the expired call leaves the queue", func() bool {
		_, text := send(t, q.a+"/api/devices/phone/queue", "", adminToken)
		return strings.Count(text, `"call_id"`) == 1 && !strings.Contains(text, `"n":`)
	})
	phone := wakePhone(t, q.b, "phone", adminToken, echoTools, true)
	if c := q.outcome(q.a, kept.CallID); c.State != "succeeded" {
		t.Errorf("kept: %+v", c)
	}
	q.call(q.a, "phone", `{"n":4}`, "", adminToken, http.StatusOK)
	if got := strings.Join(phone.seen(), " "); got != `{"n":1} {"n":4}` {
		t.Errorf("the device got %s", got)
	}
}

func TestAQueuedCallIsCheckedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	writePolicy(t, path, "")
	q := newQueuePods(t, func(cfg *farhand.Config) { cfg.PolicyFile = path })
	const ruledTools = `[{"name":"shout"},{"name":"whisper"},{"name":"hum"}]`
	q.slept("ruled", ruledTools)
	var ruled [3]queuedCall
	for i, tool := range []string{"shout", "whisper", "hum"} {
		status, text := send(t, q.a+"/api/tools/"+tool+"/call",
			`{"args":{"of":"`+tool+`"},"target":{"device_id":"ruled"},"queue":{"ttl_ms":600000}}`, adminToken)
		if err := json.Unmarshal([]byte(text), &ruled[i]); err != nil || status != http.StatusAccepted {
			t.Fatalf("%d %s", status, text)
		}
	}
	writePolicy(t, path, `calls: [{id: no-shout, deny: shout}]
tools: [{id: asks, names: whisper, approval: {by: anyone}}]
`)
	q.slept("phone", echoTools)
	key, id := q.key("")
	revoked := q.call(q.a, "phone", `{"n":1}`, "", key, http.StatusAccepted)
	q.slept("guarded", `[{"name":"echo","parameters":{"type":"object"},"security_level":"user_confirm"}]`)
	other, _ := q.key("")
	asked := q.call(q.b, "guarded", `{"n":1}`, "", other, http.StatusAccepted)
	record := read[struct {
		Approval string `json:"approval_id"`
	}](t, q.a+"/api/calls/"+asked.CallID, "", adminToken)
	if asked.State != "accepted" || record.Approval == "" {
		t.Fatalf("asked: %+v %+v", asked, record)
	}
	send(t, q.a+"/api/approvals/"+record.Approval, `{"decision":"allow-always","scope":"tool"}`, adminToken)
	testkit.Eventually(t, "the approved call is queued", func() bool {
		return read[queuedCall](t, q.a+"/api/calls/"+asked.CallID, "", adminToken).State == "queued"
	})
	granted := q.call(q.a, "guarded", `{"n":2}`, "", other, http.StatusAccepted)
	if granted.State != "queued" || granted.Place != 2 {
		t.Fatalf("granted: %+v", granted)
	}
	grants := read[struct{ Grants []struct{ ID string } }](t, q.a+"/api/grants", "", adminToken)
	for _, g := range grants.Grants {
		q.remove(q.a + "/api/grants/" + g.ID)
	}
	q.remove(q.a + "/api/keys/" + id)
	phone := wakePhone(t, q.b, "phone", adminToken, echoTools, true)
	guarded := wakePhone(t, q.b, "guarded", adminToken,
		`[{"name":"echo","parameters":{"type":"object"},"security_level":"user_confirm"}]`, true)
	if c := q.outcome(q.a, revoked.CallID); c.State != "rejected" || c.Problem.Code != "unauthenticated" {
		t.Errorf("revoked credential: %+v", c)
	}
	if c := q.outcome(q.a, asked.CallID); c.State != "succeeded" {
		t.Errorf("approved: %+v", c)
	}
	if c := q.outcome(q.a, granted.CallID); c.State != "rejected" || c.Problem.Code != "approval_denied" {
		t.Errorf("revoked grant: %+v", c)
	}
	if len(phone.seen()) != 0 || len(guarded.seen()) != 1 {
		t.Errorf("the devices got %v and %v", phone.seen(), guarded.seen())
	}

	for _, pod := range []string{q.a, q.b} {
		testkit.Eventually(t, "the pod has the new policy", func() bool {
			_, text := send(t, pod+"/api/policy", "", adminToken)
			return strings.Contains(text, "no-shout")
		})
	}
	spoken := wakePhone(t, q.b, "ruled", adminToken, ruledTools, true)
	if c := q.outcome(q.a, ruled[0].CallID); c.State != "rejected" || c.Problem.Code != "policy_denied" ||
		!strings.Contains(c.Problem.Detail, "no-shout") {
		t.Errorf("denied meanwhile: %+v", c)
	}
	if c := q.outcome(q.a, ruled[1].CallID); c.State != "rejected" || c.Problem.Code != "approval_denied" ||
		!strings.Contains(c.Problem.Detail, "now needs a person's approval") {
		t.Errorf("needs an approval meanwhile: %+v", c)
	}
	if c := q.outcome(q.a, ruled[2].CallID); c.State != "succeeded" || len(spoken.seen()) != 1 {
		t.Errorf("allowed: %+v, the device got %v", c, spoken.seen())
	}
}

func TestQueuesAreBounded(t *testing.T) {
	q := newQueuePods(t, func(cfg *farhand.Config) { cfg.Queue.Device, cfg.Queue.User = 4, 3 })
	q.slept("one", echoTools)
	q.slept("two", echoTools)
	greedy, _ := q.key(`,"user_id":"eve"`)
	modest, _ := q.key(`,"user_id":"ann"`)
	for range 2 {
		q.call(q.a, "one", `{}`, "", greedy, http.StatusAccepted)
	}
	if c := q.call(q.b, "one", `{}`, "", greedy, http.StatusTooManyRequests); c.Code != "busy" {
		t.Errorf("half of a device: %+v", c)
	}
	for range 2 {
		q.call(q.a, "one", `{}`, "", modest, http.StatusAccepted)
	}
	if c := q.call(q.b, "one", `{}`, "", modest, http.StatusTooManyRequests); c.Code != "busy" {
		t.Errorf("full device: %+v", c)
	}
	first := q.call(q.b, "two", `{}`, "", greedy, http.StatusAccepted)
	q.call(q.b, "two", `{}`, "", greedy, http.StatusTooManyRequests) // of the caller
	q.remove(q.a + "/api/calls/" + first.CallID)
	q.call(q.b, "two", `{}`, "", modest, http.StatusAccepted)
	q.call(q.b, "two", `{}`, "", greedy, http.StatusAccepted) // the cancelled call has made room
}

func TestARepeatedRequestIsQueuedOnce(t *testing.T) {
	q := newQueuePods(t, nil)
	q.slept("phone", echoTools)
	const key = `,"idempotency_key":"once"`
	first := q.call(q.a, "phone", `{"n":1}`, key, adminToken, http.StatusAccepted)
	again := q.call(q.b, "phone", `{"n":1}`, key, adminToken, http.StatusAccepted)
	if again.CallID != first.CallID || again.Place != 1 || again.State != "queued" {
		t.Errorf("first %+v, again %+v", first, again)
	}
	q.call(q.b, "phone", `{"n":2}`, key, adminToken, http.StatusConflict)
	phone := wakePhone(t, q.b, "phone", adminToken, echoTools, true)
	q.outcome(q.a, first.CallID)
	if c := q.call(q.a, "phone", `{"n":1}`, key, adminToken, http.StatusOK); c.CallID != first.CallID || !c.Success {
		t.Errorf("replayed: %+v", c)
	}
	if len(phone.seen()) != 1 {
		t.Errorf("the device got %v", phone.seen())
	}
}

// Calls race with the connection of a device that slept.
func TestACallMeetsItsDevice(t *testing.T) {
	q := newQueuePods(t, nil)
	q.slept("phone", echoTools)
	for i := range 12 {
		pods := []string{q.a, q.b}
		called := make(chan queuedCall, 1)
		go func() {
			body := `{"args":{},"mode":"async","target":{"device_id":"phone"},"queue":{"ttl_ms":600000}}`
			var c queuedCall
			_, text := send(t, pods[i%2]+"/api/tools/echo/call", body, adminToken)
			_ = json.Unmarshal([]byte(text), &c)
			called <- c
		}()
		phone := wakePhone(t, pods[i/2%2], "phone", adminToken, echoTools, true)
		c := <-called
		if end := q.outcome(q.a, c.CallID); end.State != "succeeded" || len(phone.seen()) != 1 {
			t.Errorf("round %d: %+v, the device got %v", i, end, phone.seen())
		}
		phone.sleep()
		q.asleep("phone")
	}
}

// Of a user's sleeping devices, a call waits for the default one.
func TestACallWaitsForTheDefaultDevice(t *testing.T) {
	q := newQueuePods(t, nil)
	_, text := send(t, q.a+"/api/keys", `{"roles":["device"],"user_id":"ann"}`, adminToken)
	var ann struct{ Key string }
	if err := json.Unmarshal([]byte(text), &ann); err != nil || ann.Key == "" {
		t.Fatal(text)
	}
	for _, id := range []string{"phone", "tablet"} {
		wakePhone(t, q.a, id, ann.Key, echoTools, true).sleep()
		q.asleep(id)
	}
	url := q.b + "/api/tools/echo/call"
	const body = `{"args":{"n":1},"target":{"user_id":"ann"},"queue":{"ttl_ms":600000}}`
	if status, text := send(t, url, body, adminToken); status != 409 || !strings.Contains(text, "ambiguous_target") ||
		!strings.Contains(text, "default device") {
		t.Fatalf("without a default: %d %s", status, text)
	}
	set := (&pairingPods{T: t}).ask
	for device, want := range map[string]int{"forgotten": 409, "tablet": 202} {
		set(http.MethodPut, q.a+"/api/users/ann/default-device", adminToken, nil, map[string]any{"device_id": device},
			nil)
		if status, text := send(t, url, body, adminToken); status != want {
			t.Errorf("default %s: %d %s", device, status, text)
		}
	}
	wakePhone(t, q.a, "phone", ann.Key, echoTools, true)
	tablet := wakePhone(t, q.b, "tablet", ann.Key, echoTools, true)
	testkit.Eventually(t, "the default device gets the call", func() bool { return len(tablet.seen()) == 1 })
}

func TestQueueNeedsOneKnownDevice(t *testing.T) {
	q := newQueuePods(t, nil)
	q.slept("phone", echoTools)
	for body, want := range map[string]int{
		`{"queue":{"ttl_ms":600000}}`:                                                     400,
		`{"queue":{"ttl_ms":999},"target":{"device_id":"phone"}}`:                         400,
		`{"queue":{"ttl_ms":90000000},"target":{"device_id":"phone"}}`:                    400,
		`{"queue":{},"target":{"device_id":"phone"}}`:                                     400,
		`{"queue":{"ttl_ms":600000},"target":{"device_id":"nobody"}}`:                     404,
		`{"queue":{"ttl_ms":600000},"target":{"device_id":"phone"},"args":{"n":1}}`:       202,
		`{"queue":{"ttl_ms":600000},"target":{"session_id":"phone"},"args":{"n":2}}`:      202,
		`{"target":{"session_id":"phone"}}`:                                               409,
		`{"queue":{"ttl_ms":600000},"target":{"device_id":"phone"},"select":"newest"}`:    400,
		`{"queue":{"ttl_ms":600000},"target":{"device_id":"phone"},"mode":"async"}`:       202,
		`{"queue":{"ttl_ms":600000},"target":{"device_id":"phone"},"args":"not, an obj"}`: 400,
	} {
		if status, text := send(t, q.a+"/api/tools/echo/call", body, adminToken); status != want {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	if status, text := send(t, q.b+"/api/tools/other/call",
		`{"queue":{"ttl_ms":600000},"target":{"device_id":"phone"}}`, adminToken); status != 404 {
		t.Errorf("unknown tool: %d %s", status, text)
	}
	rows := read[struct {
		Tools []struct {
			Name, Presence string
			LastSeen       string `json:"last_seen"`
		}
	}](t, q.a+"/api/tools?presence=sleeping", "", adminToken)
	if len(rows.Tools) != 1 || rows.Tools[0].Presence != "sleeping" || rows.Tools[0].LastSeen == "" {
		t.Errorf("sleeping: %+v", rows)
	}
	_, text := send(t, q.a+"/api/sessions?presence=sleeping", "", adminToken)
	if !strings.Contains(text, `"phone"`) || strings.Contains(text, "0001-01-01") {
		t.Error(text)
	}
	wakePhone(t, q.b, "phone", adminToken, echoTools, true)
	_, text = send(t, q.a+"/api/tools?presence=any&source_type=remote", "", adminToken)
	if strings.Contains(text, "sleeping") || !strings.Contains(text, `"presence":"connected"`) {
		t.Error(text)
	}
	if _, text := send(t, q.a+"/api/tools", "", adminToken); strings.Contains(text, "presence") {
		t.Error(text)
	}
	forgetful := start(t, farhand.Config{Token: adminToken, DeviceRetention: "0"})
	wakePhone(t, forgetful, "phone", adminToken, echoTools, true).sleep()
	testkit.Eventually(t, "a device that is not remembered is unknown", func() bool {
		status, _ := send(t, forgetful+"/api/tools/echo/call",
			`{"queue":{"ttl_ms":600000},"target":{"device_id":"phone"}}`, adminToken)
		return status == http.StatusNotFound
	})
}

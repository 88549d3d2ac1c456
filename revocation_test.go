package farhand_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore/redistest"
)

// threePods starts three pods on one Redis.
func threePods(t *testing.T) (urls [3]string) {
	t.Helper()
	redis := redistest.Single(t)
	for i := range urls {
		urls[i] = start(t, farhand.Config{Token: adminToken, RedisURL: farhand.Secret(redis)},
			farhand.WithModel(slowModel{}))
	}
	return urls
}

// ended is how something that outlived the check of its key came to its end.
type ended struct {
	what string
	at   time.Time
	err  error
}

// revocation is a test of what ends with a key.
type revocation struct {
	*testing.T
	urls [3]string
	key  string
	ends chan ended
	left int

	stalls func() time.Duration
}

// begin has something run until it ends by itself, and then says how.
func (r *revocation) begin(what string, run func() error) {
	r.left++
	go func() {
		err := run()
		r.ends <- ended{what, time.Now(), err}
	}()
}

// socket holds a device's socket with the key, and wants it to be closed as ended.
func (r *revocation) socket(pod int) {
	session := fmt.Sprintf("revoked-%d", pod)
	conn := connect(r.T, r.urls[pod], session, r.key)
	r.begin("socket on pod "+fmt.Sprint(pod), func() error {
		for {
			_, _, err := conn.ReadMessage()
			if closed := (*websocket.CloseError)(nil); errors.As(err, &closed) {
				if closed.Code != websocket.CloseNormalClosure || closed.Text != "session_ended" {
					return err
				}
				return nil
			} else if err != nil {
				return err
			}
		}
	})
}

// request sends a request with the key, waits until its answer has begun if it is a stream, and wants it to end.
func (r *revocation) request(what, url, body string, check func(status int, text string) error) {
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(r.Context(), method, url, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.key)
	req.Header.Set("Content-Type", "application/json")
	r.begin(what, func() error {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body) // a stream may be cut
		return check(resp.StatusCode, string(text))
	})
}

// wants returns a check of an answer.
func wants(status int, text string) func(int, string) error {
	return func(gotStatus int, gotText string) error {
		if gotStatus != status || !strings.Contains(gotText, text) {
			return fmt.Errorf("answered %d %.300s", gotStatus, gotText)
		}
		return nil
	}
}

// heldDevice is a device of somebody else that never answers, and tells what it was told to cancel.
func heldDevice(t *testing.T, url string) (calls, cancelled chan string) {
	t.Helper()
	conn := connect(t, url, "held", adminToken)
	calls, cancelled = make(chan string, 100), make(chan string, 100)
	for _, frame := range []string{
		`{"type":"connect","device_id":"held","capabilities":["cancel"]}`,
		`{"type":"register_tools","tools":[{"name":"hang","description":"x","parameters":{"type":"object"}}]}`,
	} {
		if err := conn.WriteMessage(websocket.TextMessage, []byte(frame)); err != nil {
			t.Fatal(err)
		}
	}
	registered := make(chan struct{})
	go func() {
		for {
			var f struct {
				Type string `json:"type"`
				ID   string `json:"call_id"`
			}
			if conn.ReadJSON(&f) != nil {
				return
			}
			switch f.Type {
			case "tools_registered":
				close(registered)
			case "tool_call_request":
				calls <- f.ID
			case "tool_call_cancel":
				cancelled <- f.ID
			}
		}
	}()
	<-registered
	return calls, cancelled
}

// hold begins everything that a key can begin, on three pods, and returns when all of it is under way.
func (r *revocation) hold() (cancelled chan string) {
	r.Helper()
	calls, cancelled := heldDevice(r.T, r.urls[2])
	for pod, url := range r.urls {
		r.socket(pod)
		r.request(fmt.Sprint("events on pod ", pod), url+"/api/events", "", wants(http.StatusOK, ""))
		r.request(fmt.Sprint("turn on pod ", pod), url+fmt.Sprintf("/api/sessions/revoked-%d/messages", pod),
			`{"content":"hello","stream":true}`, wants(http.StatusOK, ""))
		r.request(fmt.Sprint("call on pod ", pod), url+"/api/sessions/held/tools/hang/call", `{"timeout_ms":60000}`,
			func(status int, text string) error {
				if strings.Contains(text, `"dispatched":"no"`) { // it has reached the device
					return errors.New(text)
				}
				return wants(http.StatusUnauthorized, `"code":"unauthenticated"`)(status, text)
			})
		status, text := send(r.T, url+"/api/sessions/held/tools/hang/call",
			`{"mode":"async","timeout_ms":60000}`, r.key)
		if status != http.StatusAccepted {
			r.Fatalf("asynchronous call: %d %s", status, text)
		}
		var accepted struct {
			ID string `json:"call_id"`
		}
		if err := json.Unmarshal([]byte(text), &accepted); err != nil {
			r.Fatal(err)
		}
		r.begin(fmt.Sprint("asynchronous call on pod ", pod), func() error {
			_, text := send(r.T, r.urls[0]+"/api/calls/"+accepted.ID+"?wait_ms=30000", "", adminToken)
			if !strings.Contains(text, `"state":"cancelled"`) {
				return errors.New(text)
			}
			return nil
		})
	}
	for range 2 * len(r.urls) {
		select {
		case <-calls:
		case <-time.After(limit):
			r.Fatal("a call did not reach the device")
		}
	}
	testkit.Eventually(r.T, "the turns run", func() bool {
		_, text := send(r.T, r.urls[0]+"/api/sessions/running", "", adminToken)
		return strings.Count(text, "revoked-") >= len(r.urls)
	})
	return cancelled
}

// wantEnd wants everything to end as it should within two seconds after a moment, and nothing of it to stay.
func (r *revocation) wantEnd(from time.Time, cancelled chan string) {
	r.Helper()
	for range r.left {
		select {
		case e := <-r.ends:
			if e.err != nil {
				r.Errorf("%s: %v", e.what, e.err)
			}
			if took := e.at.Sub(from); took > 2*time.Second+10*r.stalls() {
				r.Errorf("%s ended after %v", e.what, took)
			}
		case <-time.After(limit):
			r.Fatal("something goes on")
		}
	}
	for range 2 * len(r.urls) {
		select {
		case <-cancelled:
		case <-time.After(limit):
			r.Fatal("a call goes on at the device")
		}
	}
	testkit.Eventually(r.T, "the sessions are released", func() bool {
		_, text := send(r.T, r.urls[0]+"/api/sessions?connected=true", "", adminToken)
		return !strings.Contains(text, "revoked-")
	})
	for pod, url := range r.urls {
		if status, text := send(r.T, url+"/api/tools", "", r.key); status != http.StatusUnauthorized {
			r.Errorf("pod %d: the key is taken: %d %s", pod, status, text)
		}
	}
}

// A revocation reaches sockets, streams, turns and running calls on three pods within two seconds, whether the key, its
// user or nobody says so: a key that expires ends the same things.
func TestRevocationReachesEveryPod(t *testing.T) {
	for name, end := range map[string]func(r *revocation, id string){
		"key": func(r *revocation, id string) {
			if status := remove(r.T, r.urls[1]+"/api/keys/"+id, adminToken); status != http.StatusNoContent {
				r.Fatalf("revoke: %d", status)
			}
		},
		"user": func(r *revocation, _ string) {
			status, text := send(r.T, r.urls[1]+"/api/revocations", `{"user_id":"ann"}`, adminToken)
			if status != http.StatusOK || !strings.Contains(text, `"credentials":1`) {
				r.Fatalf("revoke: %d %s", status, text)
			}
		},
		"expiry": nil,
	} {
		t.Run(name, func(t *testing.T) {
			r := &revocation{T: t, urls: threePods(t), ends: make(chan ended, 100), stalls: testkit.Stalls(t)}
			life := ""
			if end == nil {
				life = `,"expires_in":12`
			}
			made := time.Now()
			k := makeKey(t, r.urls[0], `{"roles":["device","caller"],"user_id":"ann"`+life+`}`)
			r.key = k.Key
			cancelled := r.hold()
			at := made.Add(12 * time.Second)
			if end != nil {
				at = time.Now()
				end(r, k.ID)
			}
			r.wantEnd(at, cancelled)
		})
	}
}

// A call that waits for an approval does not begin once the key of its caller was revoked, or the user whom a program's
// own authenticator has named, whoever allows it.
func TestARevokedCallerIsNotApproved(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]bool{"key": false, "own authenticator": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, token, revoke := revocableCaller(t, own)
			calls, _ := heldDevice(t, url)
			var accepted struct {
				CallID   string `json:"call_id"`
				Approval string `json:"approval_id"`
			}
			status, answer := send(t, url+"/api/sessions/held/tools/hang/call", `{"mode":"async"}`, token)
			if err := json.Unmarshal([]byte(answer), &accepted); err != nil || status != http.StatusAccepted {
				t.Fatalf("call: %d %s", status, answer)
			}
			revoke()
			if status, said := send(t, url+"/api/approvals/"+accepted.Approval, `{"decision":"allow-once"}`,
				adminToken); status != http.StatusOK {
				t.Fatalf("allow: %d %s", status, said)
			}
			var record string
			testkit.Eventually(t, "the call has ended", func() bool {
				_, record = send(t, url+"/api/calls/"+accepted.CallID, "", adminToken)
				return strings.Contains(record, `"state":"rejected"`)
			})
			if !strings.Contains(record, "revoked") || len(calls) > 0 {
				t.Errorf("%d calls; %s", len(calls), record)
			}
		})
	}
}

// revocableCaller starts a gateway where the tool hang needs an approval, and returns a caller's token and what revokes
// it. With an authenticator of its own the gateway does not know when the caller's identity was issued.
func revocableCaller(t *testing.T, own bool) (url, token string, revoke func()) {
	t.Helper()
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	text := "version: 1\ntools:\n  - id: ask\n    names: [hang]\n    approval: always\n"
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if !own {
		url = start(t, farhand.Config{Token: adminToken, PolicyFile: policy})
		k := makeKey(t, url, `{"roles":["caller"]}`)
		return url, k.Key, func() {
			if status := remove(t, url+"/api/keys/"+k.ID, adminToken); status != http.StatusNoContent {
				t.Fatalf("revoke: %d", status)
			}
		}
	}
	url = start(t, farhand.Config{PolicyFile: policy}, farhand.WithAuthenticator(auth.AuthenticatorFunc(
		func(_ context.Context, _ *http.Request, token string) (auth.Identity, error) {
			return auth.Identity{Admin: token == adminToken, User: strings.TrimPrefix(token, adminToken)}, nil
		})))
	return url, "ann", func() {
		if status, text := send(t, url+"/api/revocations", `{"user_id":"ann"}`, adminToken); status != http.StatusOK {
			t.Fatalf("revoke: %d %s", status, text)
		}
	}
}

// The first of two who must allow a call does not count once his key was revoked: the next one is the first then.
func TestARevokedApproverDoesNotCount(t *testing.T) {
	t.Parallel()
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	text := "version: 1\ntools:\n  - {id: ask, names: hang, approval: {by: two}}\n"
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	url := start(t, farhand.Config{Token: adminToken, PolicyFile: policy})
	calls, _ := heldDevice(t, url)
	keys := make(map[string]createdKey)
	for _, who := range []string{"ann", "ben", "cleo"} {
		keys[who] = makeKey(t, url, `{"roles":["approver"],"user_id":"`+who+`"}`)
	}
	asks := makeKey(t, url, `{"roles":["caller"]}`)
	var accepted struct {
		Approval string `json:"approval_id"`
	}
	status, answer := send(t, url+"/api/sessions/held/tools/hang/call", `{"mode":"async"}`, asks.Key)
	if err := json.Unmarshal([]byte(answer), &accepted); err != nil || status != http.StatusAccepted {
		t.Fatalf("call: %d %s", status, answer)
	}
	allow := func(who, want string) {
		t.Helper()
		status, said := send(t, url+"/api/approvals/"+accepted.Approval, `{"decision":"allow-once"}`, keys[who].Key)
		if status != http.StatusOK || !strings.Contains(said, want) {
			t.Fatalf("%s allows it: %d %s", who, status, said)
		}
	}
	allow("ann", `"allowed_by":"ann"`)
	if status := remove(t, url+"/api/keys/"+keys["ann"].ID, adminToken); status != http.StatusNoContent {
		t.Fatalf("revoke: %d", status)
	}
	allow("ben", `"allowed_by":"ben"`)
	if len(calls) > 0 {
		t.Fatal("the call runs")
	}
	allow("cleo", `"decided_by":"ben, cleo"`)
}

// What was always allowed to a user is asked about again once the user was revoked.
func TestRevocationEndsGrants(t *testing.T) {
	t.Parallel()
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	text := "version: 1\ntools:\n  - id: ask\n    names: [hang]\n    approval: always\n"
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	url := start(t, farhand.Config{Token: adminToken, PolicyFile: policy})
	heldDevice(t, url)
	k := makeKey(t, url, `{"roles":["caller"],"user_id":"ann"}`)
	var accepted struct {
		Approval string `json:"approval_id"`
	}
	status, answer := send(t, url+"/api/sessions/held/tools/hang/call", `{"mode":"async"}`, k.Key)
	if err := json.Unmarshal([]byte(answer), &accepted); err != nil || status != http.StatusAccepted {
		t.Fatalf("call: %d %s", status, answer)
	}
	if status, said := send(t, url+"/api/approvals/"+accepted.Approval, `{"decision":"allow-always"}`,
		adminToken); status != http.StatusOK {
		t.Fatalf("allow: %d %s", status, said)
	}
	if _, list := send(t, url+"/api/grants", "", adminToken); !strings.Contains(list, `"tool":"hang"`) {
		t.Fatalf("granted %s", list)
	}
	if status, said := send(t, url+"/api/revocations", `{"user_id":"ann"}`, adminToken); status != http.StatusOK {
		t.Fatalf("revoke: %d %s", status, said)
	}
	testkit.Eventually(t, "the grant has ended", func() bool {
		_, list := send(t, url+"/api/grants", "", adminToken)
		return strings.Contains(list, `"grants":[]`)
	})
}

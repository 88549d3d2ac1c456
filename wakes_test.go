package farhand_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent/wake"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/ws/client"
)

const wakeSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// wakingPods are gateways of one fleet that wake devices by webhook.
func wakingPods(t *testing.T, n int, settings wake.Settings) (pods []*farhand.Gateway, urls []string) {
	t.Helper()
	redis := redistest.Start(t)
	for range n {
		g, err := farhand.New(t.Context(), farhand.Config{
			Token: pairToken, RedisURL: farhand.Secret("redis://" + redis.Addr()), Wake: settings,
			ToolsConfig: farhand.ToolsConfig{PrivateURLs: true},
		}, quiet, farhand.WithProgram(self))
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(g.Handler())
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			if err := g.Close(ctx); err != nil {
				t.Errorf("close: %v", err)
			}
			server.Close()
		})
		pods, urls = append(pods, g), append(urls, server.URL)
	}
	return pods, urls
}

// sleeper is a device that connects when it gets a push.
type sleeper struct {
	t      *testing.T
	device *client.Client
	pushes atomic.Int64

	mu   sync.Mutex
	stop context.CancelFunc // of the connection; nil: it sleeps
	work sync.WaitGroup
}

func newSleeper(t *testing.T, gateway string) *sleeper {
	t.Helper()
	s := &sleeper{t: t}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = testkit.VerifyWebhook(wakeSecret, r.Header, body)
		}
		if err != nil || !strings.Contains(string(body), `"device_id":"phone"`) ||
			strings.Contains(string(body), "look") {
			t.Errorf("push %s: %v", body, err)
		}
		s.pushes.Add(1)
		s.connect()
		w.WriteHeader(http.StatusNoContent)
	}))
	var err error
	s.device, err = client.New(gateway, client.WithToken(pairToken), client.WithDevice("phone", "Phone", "test"),
		client.WithTool(client.Tool{Name: "look"},
			func(context.Context, client.Call) (any, error) { return "a cat", nil }),
		client.WithWake(func(offer client.WakeOffer) *client.Wake {
			if len(offer.Kinds) != 1 || offer.Kinds[0] != "webhook" {
				t.Errorf("offered %+v", offer)
			}
			return &client.Wake{Kind: "webhook", URL: service.URL + "/phone", MinIntervalMS: 1000}
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.sleep(); service.Close() })
	return s
}

func (s *sleeper) connect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.work.Go(func() { _ = s.device.Run(ctx) }) // ends with ctx
}

func (s *sleeper) sleep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		s.stop()
		s.work.Wait()
		s.stop = nil
	}
}

// Two pods queue many calls for a device that sleeps: it gets one push, connects and answers them.
func TestPushWakesADevice(t *testing.T) {
	_, urls := wakingPods(t, 2, wake.Settings{WebhookSecret: wakeSecret})
	s := newSleeper(t, urls[0])
	s.connect()
	var shown struct{ Kind, Host string }
	testkit.Eventually(t, "the registration", func() bool {
		status, text := send(t, urls[1]+"/api/devices/phone/wake", "", pairToken)
		return status == http.StatusOK && json.Unmarshal([]byte(text), &shown) == nil
	})
	if shown.Kind != "webhook" || !strings.HasPrefix(shown.Host, "127.0.0.1:") {
		t.Errorf("shown %+v", shown)
	}
	testkit.Eventually(t, "the tool", func() bool { return s.calls(urls[1]) })
	sleep := func() {
		t.Helper()
		s.sleep()
		testkit.Eventually(t, "the device sleeps", func() bool {
			_, text := send(t, urls[1]+"/api/sessions?device_id=phone", "", pairToken)
			return !strings.Contains(text, `"phone"`)
		})
	}
	sleep()
	if n := s.pushes.Load(); n != 0 {
		t.Errorf("%d pushes to a device that is connected", n)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var queued []string
	for _, url := range urls {
		all.Go(func() {
			for range 10 {
				_, text := send(t, url+"/api/tools/look/call", `{"mode":"async","target":{"device_id":"phone"},`+
					`"queue":{"ttl_ms":60000}}`, pairToken)
				var call struct {
					CallID string `json:"call_id"`
				}
				if err := json.Unmarshal([]byte(text), &call); err != nil {
					t.Error(err)
				}
				mu.Lock()
				queued = append(queued, call.CallID)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for _, id := range queued {
		testkit.Eventually(t, "the end of a queued call", func() bool {
			_, text := send(t, urls[1]+"/api/calls/"+id+"?wait_ms=5000", "", pairToken)
			return strings.Contains(text, "a cat")
		})
	}
	if n := s.pushes.Load(); n != 1 {
		t.Errorf("%d pushes, want one", n)
	}

	// A group call wakes it, too.
	sleep()
	status, text := send(t, urls[1]+"/api/calls",
		`{"tool":"look","target":{"device_ids":["phone"]},"queue":{"ttl_ms":60000}}`, pairToken)
	var table groupTable
	if err := json.Unmarshal([]byte(text), &table); err != nil || table.Counts.Queued != 1 || len(table.Results) != 1 {
		t.Fatalf("group call: %d %s", status, text)
	}
	testkit.Eventually(t, "the end of its child", func() bool {
		_, text := send(t, urls[0]+"/api/calls/"+table.Results[0].CallID+"?wait_ms=5000", "", pairToken)
		return strings.Contains(text, "a cat")
	})
	if n := s.pushes.Load(); n != 2 {
		t.Errorf("%d pushes, want a second one", n)
	}
}

func (s *sleeper) calls(url string) bool {
	_, text := send(s.t, url+"/api/tools/look/call", `{"target":{"device_id":"phone"}}`, pairToken)
	return strings.Contains(text, "a cat")
}

// Only admins and the device's user set how a device is woken. Secrets are not shown.
func TestWakesOverHTTP(t *testing.T) {
	_, urls := wakingPods(t, 1, wake.Settings{WebhookSecret: wakeSecret})
	url := urls[0] + "/api/devices/phone/wake"
	ask := func(method, body string, want int) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+pairToken)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != want {
			t.Errorf("%s %s: %d %s %v, want %d", method, body, resp.StatusCode, text, err, want)
		}
		return string(text)
	}
	hook := `{"kind":"webhook","url":"https://push.example.com/secret","min_interval_ms":5000,` +
		`"quiet":{"from":"22:00","to":"07:00","zone":"Europe/Vienna"}}`
	ask(http.MethodPut, hook, http.StatusNotFound) // no such device
	s := newSleeper(t, urls[0])
	s.connect()
	testkit.Eventually(t, "the tool", func() bool { return s.calls(urls[0]) })
	shown := ask(http.MethodPut, hook, http.StatusOK)
	if strings.Contains(shown, "secret") || !strings.Contains(shown, `"host":"push.example.com"`) ||
		!strings.Contains(shown, `"zone":"Europe/Vienna"`) || !strings.Contains(shown, `"min_interval_ms":5000`) {
		t.Errorf("shown %s", shown)
	}
	for _, bad := range []string{
		`{}`, `{"kind":"pigeon"}`, `{"kind":"webhook"}`, `{"kind":"webhook","url":"ftp://example.com/"}`,
		`{"kind":"webhook","url":"https://user:pass@example.com/"}`,
		`{"kind":"webhook","url":"https://169.254.169.254/"}`,
		`{"kind":"webhook","url":"https://example.com/","token":"x"}`, `{"kind":"fcm","token":"x"}`,
		`{"kind":"webhook","url":"https://example.com/","min_interval_ms":10}`,
		`{"kind":"webhook","url":"https://example.com/","quiet":{"from":"25:00","to":"07:00","zone":""}}`,
		`{"kind":"webhook","url":"https://example.com/","quiet":{"from":"22:00","to":"07:00","zone":"Mars/Base"}}`,
	} {
		ask(http.MethodPut, bad, http.StatusBadRequest)
	}
	ask(http.MethodDelete, "", http.StatusNoContent)
	ask(http.MethodGet, "", http.StatusNotFound)
	ask(http.MethodDelete, "", http.StatusNotFound)
	s.sleep()
	testkit.Eventually(t, "it sleeps", func() bool {
		_, text := send(t, urls[0]+"/api/sessions?presence=sleeping", "", pairToken)
		return strings.Contains(text, `"phone"`)
	})
	ask(http.MethodPut, hook, http.StatusOK)
}

// Two users have devices that chose the same id. Each is woken for the calls of its own user, and told of no others.
func TestWakesAreNotToldToOthers(t *testing.T) {
	_, urls := wakingPods(t, 1, wake.Settings{WebhookSecret: wakeSecret, Content: true})
	pushed := make(chan string, 4)
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		pushed <- r.URL.Path + " " + string(body)
	}))
	t.Cleanup(service.Close)
	for _, user := range []string{"ann", "ben"} {
		_, text := send(t, urls[0]+"/api/keys", `{"name":"d","roles":["device"],"user_id":"`+user+`"}`, pairToken)
		var made struct{ Key string }
		if err := json.Unmarshal([]byte(text), &made); err != nil {
			t.Fatal(err)
		}
		conn := connect(t, urls[0], user, made.Key)
		for _, frame := range []string{
			`{"type":"connect","v":1,"device_id":"phone","capabilities":["wake"]}`,
			`{"type":"register_tools","tools":[{"name":"of_` + user + `","parameters":{"type":"object"}}]}`,
			`{"type":"register_wake","wake":{"kind":"webhook","min_interval_ms":1000,"url":"` +
				service.URL + `/` + user + `"}}`,
		} {
			if err := conn.WriteMessage(websocket.TextMessage, []byte(frame)); err != nil {
				t.Fatal(err)
			}
			if _, _, err := conn.ReadMessage(); err != nil {
				t.Fatal(err)
			}
		}
		conn.Close()
	}
	queue := func(user string) {
		testkit.Eventually(t, "the call waits", func() bool {
			status, _ := send(t, urls[0]+"/api/tools/of_"+user+"/call",
				`{"args":{},"target":{"user_id":"`+user+`"},"queue":{"ttl_ms":600000}}`, pairToken)
			return status == http.StatusAccepted
		})
	}
	for _, user := range []string{"ben", "ann"} {
		queue(user)
		body := testkit.Receive(t, "the push", pushed)
		if !strings.HasPrefix(body, "/"+user+" ") || !strings.Contains(body, `"tools":["of_`+user+`"]`) {
			t.Errorf("pushed for %s: %s", user, body)
		}
	}
}

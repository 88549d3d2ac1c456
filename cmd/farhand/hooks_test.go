package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/ws/client"
)

const (
	hookSecret   = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	resultCanary = "canary-of-a-result"
	argCanary    = "canary-of-arguments"
	redacted     = "REDACTED"
)

// hookFile makes a file with one hook at a service that replaces the canaries in results and in arguments.
func hookFile(t *testing.T) string {
	t.Helper()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = testkit.VerifyWebhook(hookSecret, r.Header, body)
		}
		var q struct{ Args, Result json.RawMessage }
		if err := json.Unmarshal(body, &q); err != nil {
			t.Errorf("question: %v", err)
		}
		if err != nil {
			t.Errorf("question: %v", err)
		}
		field, value := "args", q.Args
		if q.Result != nil {
			field, value = "result", q.Result
		}
		value = bytes.ReplaceAll(bytes.ReplaceAll(value, []byte(argCanary), []byte(redacted)), []byte(resultCanary),
			[]byte(redacted))
		fmt.Fprintf(w, `{"decision":"modify",%q:%s}`, field, value)
	}))
	t.Cleanup(service.Close)
	path := filepath.Join(t.TempDir(), "hooks.yaml")
	text := fmt.Sprintf("hooks:\n  - name: redactor\n    url: %s\n    secret: %s\n    phase: both\n"+
		"    allow_private: true\n    timeout: 10s\n", service.URL, hookSecret)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// isReply reports whether a line of MONITOR is about the list in which a pod finds what other pods tell it. Answers to
// light calls are in it until that pod has read them, as devices gave them: the pod that was asked amends them.
func isReply(line string) bool { return strings.Contains(line, `:replies"`) }

// monitored returns every command of a Redis from now on, but for what its pods publish.
func monitored(t *testing.T, addr string) *lockedBuffer {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	seen, done := &lockedBuffer{}, make(chan struct{})
	t.Cleanup(func() { conn.Close(); <-done })
	fmt.Fprint(conn, "MONITOR\r\n")
	in := bufio.NewReader(conn)
	if ok, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(ok, "+OK") {
		t.Fatalf("MONITOR: %q, %v", ok, err)
	}
	go func() {
		defer close(done)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			_, command, _ := strings.Cut(line, "] ")
			if c := strings.ToLower(command); !strings.HasPrefix(c, `"publish"`) &&
				!strings.HasPrefix(c, `"spublish"`) {
				seen.Write([]byte(line))
			}
		}
	}()
	return seen
}

// teller is a device whose tool tells the canary in every place there is.
type teller struct {
	t    *testing.T
	conn *websocket.Conn
	args *lockedBuffer
	hold chan struct{} // what "late" calls wait for
	wg   sync.WaitGroup
	mu   sync.Mutex
}

func startTeller(t *testing.T, url string) *teller {
	t.Helper()
	conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(url, "http")+"/ws/chat?session_id=phone",
		http.Header{"Authorization": {"Bearer " + fleetToken}})
	if err != nil {
		t.Fatal(err)
	}
	d := &teller{t: t, conn: conn, args: &lockedBuffer{}, hold: make(chan struct{})}
	d.send(map[string]any{"type": "connect", "capabilities": []string{"progress", "ack"}})
	d.send(map[string]any{"type": "register_tools", "tools": []any{map[string]any{"name": "work", "description": "x"}}})
	d.wg.Go(d.serve)
	t.Cleanup(func() { conn.Close(); d.wg.Wait() })
	return d
}

func (d *teller) send(v any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.conn.WriteJSON(v)
}

func (d *teller) serve() {
	for {
		var f struct {
			Type, ID string
			Args     json.RawMessage
		}
		if d.conn.ReadJSON(&f) != nil {
			return
		}
		if f.Type != "tool_call_request" {
			continue
		}
		fmt.Fprintf(d.args, "%s\n", f.Args)
		d.wg.Go(func() {
			d.send(map[string]any{"type": "tool_progress", "id": f.ID, "progress": 0.5,
				"message": "says " + resultCanary, "chunk": "a part: " + resultCanary})
			if bytes.Contains(f.Args, []byte(`"late"`)) {
				<-d.hold
			}
			d.send(map[string]any{"type": "tool_result", "id": f.ID, "success": true,
				"output": map[string]any{"password": resultCanary, "of": "work"}})
		})
	}
}

// followAll reads an endless stream of events until the test ends.
func followAll(t *testing.T, url string) *lockedBuffer {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+fleetToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	seen, done := &lockedBuffer{}, make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(seen, resp.Body)
	}()
	t.Cleanup(func() { cancel(); resp.Body.Close(); <-done })
	return seen
}

// hookScript is a model that calls the device's tool, and the caller's own beside it if there is one, and then repeats
// what it read.
func hookScript(r scripted.Request) scripted.Step {
	role, content := lastOf(r)
	if role != "user" {
		return scripted.Reply(scripted.Text("I read: ", content))
	}
	calls := []scripted.Call{{Name: "work", Args: `{"x":"of the model"}`}}
	if content == "mixed" {
		calls = append(calls, scripted.Call{Name: "forecast", Args: `{}`})
	}
	return scripted.Reply(scripted.Calls(calls...))
}

// TestHooksRedactEverywhere: what an HTTP hook takes out of results is read nowhere: in no answer of any kind on either
// pod, no event, no transcript, not by the model, in nothing that is written to Redis, in no log. The same of what it
// takes out of arguments, which only the caller and the transcript of its own model know.
func TestHooksRedactEverywhere(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--rdbcompression", "no")
	model := scripted.OpenAIFunc(t, hookScript)
	pods := startFleet(t, 2, server.URL(), append(agentSettings(providerOpenAI, model),
		"FARHAND_HOOKS_FILE="+hookFile(t), "FARHAND_LOG_LEVEL=debug", "FARHAND_LOG_FORMAT=json",
		"FARHAND_ACCESS_LOG=all")...)
	writes := monitored(t, server.Addr())
	device := startTeller(t, pods[1].url)
	eventually(t, waitLimit, "the device is listed", func() bool { return toolsOf(t, pods[0].url)["phone"] == 1 })
	feeds := []*lockedBuffer{followAll(t, pods[0].url), followAll(t, pods[1].url)}
	var read strings.Builder
	ask := func(pod int, method, path, body string, wants ...string) []byte {
		t.Helper()
		status, text := request(t, method, pods[pod].url+path, body)
		for _, want := range wants {
			if !bytes.Contains(text, []byte(want)) {
				t.Errorf("%s %s: %d without %q: %s", method, path, status, want, text)
			}
		}
		fmt.Fprintf(&read, "%s %s: %d %s\n", method, path, status, text)
		return text
	}
	idOf := func(text []byte) string {
		var a struct {
			CallID string `json:"call_id"`
		}
		if json.Unmarshal(text, &a) != nil || a.CallID == "" {
			t.Fatalf("no call: %s", text)
		}
		return a.CallID
	}
	const call = "/api/sessions/phone/tools/work/call"
	args := `{"x":"` + argCanary + `"}`
	var ids, durable []string
	for pod := range pods {
		ids = append(ids, idOf(ask(pod, http.MethodPost, call, `{"args":`+args+`}`, redacted)))
		keyed := idOf(ask(pod, http.MethodPost, call, `{"args":`+args+`,"idempotency_key":"k"}`, redacted))
		ids, durable = append(ids, keyed), append(durable, keyed)
		async := idOf(ask(pod, http.MethodPost, call, `{"args":`+args+`,"mode":"async"}`))
		ids, durable = append(ids, async), append(durable, async)
		digest := fmt.Sprintf("%x", sha256.Sum256([]byte(args)))
		ask(pod, http.MethodGet, "/api/calls/"+async+"?wait_ms=10000", "", redacted, digest)
	}
	// Answers that come when their callers have gone.
	for name, body := range map[string]string{
		"light": `{"args":{"x":"late"},"timeout_ms":3000}`,
		"keyed": `{"args":{"x":"late"},"timeout_ms":3000,"idempotency_key":"late"}`,
	} {
		id := idOf(ask(0, http.MethodPost, call, body, "timeout"))
		ids = append(ids, id)
		eventually(t, waitLimit, "the record of the call "+name, func() bool {
			status, _ := request(t, http.MethodGet, pods[0].url+"/api/calls/"+id, "")
			return status == http.StatusOK
		})
	}
	close(device.hold)
	for _, id := range ids[len(ids)-2:] {
		eventually(t, waitLimit, "the late answer is kept", func() bool {
			_, text := request(t, http.MethodGet, pods[1].url+"/api/calls/"+id, "")
			return bytes.Contains(text, []byte(redacted))
		})
	}
	// Conversations: kept by the gateway, and by their caller.
	ask(0, http.MethodPost, "/api/sessions/phone/messages", `{"content":"go","stream":true,"debug":true}`, redacted)
	ask(1, http.MethodGet, "/api/sessions/phone/messages?limit=1000", "", redacted)
	completion := `{"model":"` + modelName + `","messages":[{"role":"user","content":"mixed"}],"tools":[` +
		`{"type":"function","function":{"name":"forecast","parameters":{"type":"object"}}}],"stream":%t}`
	for i, stream := range []bool{false, true} {
		req, err := http.NewRequest(http.MethodPost, pods[i].url+"/v1/chat/completions",
			strings.NewReader(fmt.Sprintf(completion, stream)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+fleetToken)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Farhand-Session", "phone")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if !bytes.Contains(text, []byte("forecast")) {
			t.Errorf("handed out: %s", text)
		}
		read.Write(text)
	}
	for pod := range pods {
		for _, id := range ids {
			ask(pod, http.MethodGet, "/api/calls/"+id, "")
			ask(pod, http.MethodGet, "/api/calls/"+id+"/events", "")
		}
		ask(pod, http.MethodGet, "/api/calls", "")
		ask(pod, http.MethodGet, "/metrics", "")
	}
	eventually(t, waitLimit, "the feeds have the calls", func() bool {
		return strings.Count(feeds[0].String(), `"work"`) >= len(ids) &&
			strings.Count(feeds[1].String(), `"work"`) >= len(ids)
	})

	keys, err := server.Command("--scan")
	if err != nil {
		t.Fatal(err)
	}
	var dump strings.Builder
	for key := range strings.FieldsSeq(keys) {
		text, err := server.Command("DUMP", key)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&dump, "%s %s\n", key, text)
	}
	places := map[string]string{
		"what Redis keeps": dump.String(),
		"answers":          read.String(), "feed 1": feeds[0].String(), "feed 2": feeds[1].String(),
		"Redis": writes.String(), "log 1": pods[0].out.String(), "log 2": pods[1].out.String(),
	}
	for i, r := range model.Requests() {
		text := fmt.Sprintf("%+v", r)
		if len(r.Messages) > 2 && !strings.Contains(text, redacted) {
			t.Errorf("the model did not read a result: %s", text)
		}
		places[fmt.Sprintf("request %d to the model", i)] = text
	}
	for place, text := range places {
		for _, canary := range []string{resultCanary, argCanary} {
			for line := range strings.Lines(text) {
				if strings.Contains(line, canary) && !(place == "Redis" && isReply(line)) {
					t.Errorf("%s has %s: %.1000s", place, canary, line)
				}
			}
			if text == "" {
				t.Errorf("%s: nothing was looked at", place)
			}
		}
		if strings.Contains(text, hookSecret[6:]) {
			t.Errorf("%s: the hook's secret", place)
		}
	}
	for line := range strings.Lines(writes.String()) {
		for _, id := range durable { // their answers are stored before anybody is told
			if strings.Contains(line, id) && strings.Contains(line, resultCanary) {
				t.Errorf("another pod was told %.1000s", line)
			}
		}
	}
	if got := device.args.String(); strings.Contains(got, argCanary) || !strings.Contains(got, redacted) {
		t.Errorf("the device was sent %s", got)
	}
	if !strings.Contains(writes.String(), redacted) || !strings.Contains(dump.String(), redacted) {
		t.Error("Redis has no result at all, so nothing was looked at")
	}
}

// TestDeadHookStallsNobodyElse: while a hook never answers, calls of tools that it does not guard take no longer, and
// those that it guards end when its time is up.
func TestDeadHookStallsNobodyElse(t *testing.T) {
	t.Parallel()
	dead, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dead.Close() })
	path := filepath.Join(t.TempDir(), "hooks.yaml")
	text := fmt.Sprintf("hooks:\n  - {name: dead, url: 'http://%s', secret: %s, phase: both, tools: [work], "+
		"allow_private: true, timeout: 1s, max_concurrent: 4}\n", dead.Addr(), hookSecret)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startPod(t, "FARHAND_HOOKS_FILE="+path, "FARHAND_MODEL=none",
		"FARHAND_MODEL_URL=http://"+testkit.FreeAddr(t)+"/v1")
	startRawDevice(t, "phone", []string{p.url}, func(json.RawMessage) string { return "done" })
	eventually(t, waitLimit, "the device is listed", func() bool { return toolsOf(t, p.url)["phone"] == 1 })
	var guarded sync.WaitGroup
	for range 40 {
		guarded.Go(func() {
			status, text := request(t, http.MethodPost, p.url+"/api/sessions/phone/tools/work/call", `{}`)
			if status != http.StatusForbidden || !bytes.Contains(text, []byte("hook_cancelled")) {
				t.Errorf("a guarded call: %d %s", status, text)
			}
		})
	}
	var slowest time.Duration
	for range 50 {
		start := time.Now()
		status, text := request(t, http.MethodPost, p.url+"/api/tools/time/call", `{}`)
		if status != http.StatusOK {
			t.Fatalf("another call: %d %s", status, text)
		}
		slowest = max(slowest, time.Since(start))
	}
	guarded.Wait()
	t.Logf("beside a dead hook the slowest of 50 other calls took %v", slowest)
}

// TestHookExample: the service of examples/hook, which docs/operate.md names, does what it says.
func TestHookExample(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatalf("this test needs Python 3.9 or later: %v", err)
	}
	host, port, err := net.SplitHostPort(testkit.FreeAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	start(t, []string{"HOOK_SECRET=" + hookSecret}, python, "../../examples/hook/receiver.py", host, port)
	path := filepath.Join(t.TempDir(), "hooks.yaml")
	text := fmt.Sprintf("hooks:\n  - name: cards\n    url: http://%s:%s\n    secret: %s\n    phase: both\n"+
		"    allow_private: true\n    timeout: 10s\n", host, port, hookSecret)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, waitLimit, "the service listens", func() bool {
		resp, err := http.Post("http://"+net.JoinHostPort(host, port), "application/json", strings.NewReader("{}"))
		if err != nil {
			return false
		}
		resp.Body.Close()
		return true
	})
	p := startPod(t, "FARHAND_HOOKS_FILE="+path)
	say := func(text string) client.Handler {
		return func(context.Context, client.Call) (any, error) { return text, nil }
	}
	connectDevice(t, p.url, "phone",
		client.WithTool(client.Tool{Name: "read_card", Description: "x"}, say("It is 4111 1111 1111 1111.")),
		client.WithTool(client.Tool{Name: "scan_card", Description: "x"},
			func(context.Context, client.Call) (any, error) {
				return client.Result{Output: map[string]any{
					"file": "scan_4111111111111111.png", "4111-1111-1111-1111": "visa", "number": 4111111111111111,
					"at": 1795180735500, "all": []string{"x4111111111111111y", "4111_1111_1111_1111"},
				}, Parts: []client.Part{{
					Type: client.PartImage, MIMEType: "image/png", Name: "scan_4111111111111111.png", Data: []byte{1},
				}}}, nil
			}),
		client.WithTool(client.Tool{Name: "delete_all", Description: "x"}, say("gone")))
	number := regexp.MustCompile(`4111.?1111`)
	for tool, want := range map[string]string{
		"read_card": "It is [card].", "delete_all": "nothing is deleted here", "scan_card": `"name":"scan_[card].png"`,
	} {
		_, text := request(t, http.MethodPost, p.url+"/api/tools/"+tool+"/call", `{}`)
		if !bytes.Contains(text, []byte(want)) || number.Match(text) {
			t.Errorf("%s: %s", tool, text)
		}
		if tool == "scan_card" && !bytes.Contains(text, []byte(`1795180735500`)) {
			t.Errorf("what is no card is gone: %s", text)
		}
	}
}

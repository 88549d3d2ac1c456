package main

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/redisstore/redistest"
)

// post sends JSON with the fleet's token and returns the answer, its body read.
func (p *pod) post(t *testing.T, path, body string) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+fleetToken)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, text
}

const completionHello = `{"model":"farhand","messages":[{"role":"user","content":"hello"}]}`

// TestFullPod: a pod with the maximum of turns rejects further ones, with Retry-After.
func TestFullPod(t *testing.T) {
	t.Parallel()
	held, release := make(chan struct{}), make(chan struct{})
	model := scripted.OpenAI(t, scripted.Reply(scripted.Do(func() { close(held) }), scripted.Hold(release),
		scripted.Text("done")))
	pods := startFleet(t, 1, redistest.Single(t),
		append(agentSettings(providerOpenAI, model), envPrefix+"MAX_TURNS=1")...)
	connectDevice(t, pods[0].url, "phone")
	first := make(chan []byte, 1)
	go func() {
		_, body := pods[0].post(t, "/v1/chat/completions", completionHello)
		first <- body
	}()
	<-held
	for _, tt := range []struct{ path, body string }{
		{"/v1/chat/completions", completionHello},
		{"/v1/chat/completions", strings.TrimSuffix(completionHello, "}") + `,"stream":true}`},
		{"/api/sessions/phone/messages", `{"content":"hello"}`},
		{"/api/sessions/phone/messages", `{"content":"hello","stream":true}`},
	} {
		resp, body := pods[0].post(t, tt.path, tt.body)
		seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		if resp.StatusCode != http.StatusTooManyRequests || err != nil || seconds < 1 ||
			resp.Header.Get("X-Should-Retry") != "" ||
			!bytes.Contains(body, []byte(`"busy"`)) {
			t.Errorf("%s: status %d, %v: %s", tt.path, resp.StatusCode, resp.Header, body)
		}
	}
	talker := dialRaw(t, pods[0].url, "talker")
	if err := talker.WriteMessage(websocket.TextMessage, []byte(`{"type":"message","content":"hello"}`)); err != nil {
		t.Fatal(err)
	}
	var frame struct {
		Type, Code string
		RetryAfter int `json:"retry_after_ms"`
	}
	for frame.Type != "error" {
		if err := talker.ReadJSON(&frame); err != nil {
			t.Fatal(err)
		}
	}
	if frame.Code != "SESSION_BUSY" || frame.RetryAfter < 1 {
		t.Errorf("on the socket: %+v", frame)
	}
	close(release)
	if body := <-first; !bytes.Contains(body, []byte("done")) {
		t.Errorf("the first turn: %s", body)
	}
}

// TestTheProvidersAdviceIsPassedOn: a pod that a provider tells to wait tells its own callers.
func TestTheProvidersAdviceIsPassedOn(t *testing.T) {
	t.Parallel()
	status := make(chan int, 1)
	model := scripted.AnthropicFunc(t, func(scripted.Request) scripted.Step {
		return scripted.Fail(<-status, "not now").With("Retry-After", "77") // longer than the gateway waits itself
	})
	pods := startFleet(t, 1, redistest.Single(t), agentSettings(providerAnthropic, model)...)
	connectDevice(t, pods[0].url, "phone")
	for upstream, want := range map[int]int{429: 429, 503: 502, 529: 502} {
		for path, body := range map[string]string{
			"/v1/chat/completions": completionHello, "/api/sessions/phone/messages": `{"content":"hello"}`,
		} {
			status <- upstream
			resp, text := pods[0].post(t, path, body)
			expected := want
			if path != "/v1/chat/completions" {
				expected = http.StatusBadGateway // the limit is the provider's, not this gateway's
			}
			if resp.StatusCode != expected || resp.Header.Get("Retry-After") != "77" {
				t.Errorf("%d on %s: %d, %v: %s", upstream, path, resp.StatusCode, resp.Header, text)
			}
		}
	}
}

// TestARefusalOfAnthropicIsTold: as a refusal, and neither as an empty answer nor as a failure.
func TestARefusalOfAnthropicIsTold(t *testing.T) {
	t.Parallel()
	model := scripted.AnthropicFunc(t, func(scripted.Request) scripted.Step {
		return scripted.Reply(scripted.Stop(provider.StopRefusal))
	})
	pods := startFleet(t, 1, redistest.Single(t), agentSettings(providerAnthropic, model)...)
	connectDevice(t, pods[0].url, "phone")
	for _, tt := range []struct{ path, body, want string }{
		{"/v1/chat/completions", completionHello, `"content":null,"refusal":"The model declined to answer."`},
		{"/v1/chat/completions", completionHello, `"finish_reason":"content_filter"`},
		{"/v1/chat/completions", strings.TrimSuffix(completionHello, "}") + `,"stream":true}`,
			`"delta":{"refusal":"The model declined to answer."}`},
		{"/api/sessions/phone/messages", `{"content":"hello"}`, `"full_response":"The model declined to answer."`},
		{"/api/sessions/phone/messages", `{"content":"hello"}`, `"stop_reason":"content_filter"`},
	} {
		if resp, body := pods[0].post(t, tt.path, tt.body); resp.StatusCode != http.StatusOK ||
			!bytes.Contains(body, []byte(tt.want)) {
			t.Errorf("%s: %d, without %s: %s", tt.path, resp.StatusCode, tt.want, body)
		}
	}
	// A field that Anthropic has no word for is refused by its name.
	resp, body := pods[0].post(t, "/v1/chat/completions", strings.TrimSuffix(completionHello, "}")+`,"seed":1}`)
	if resp.StatusCode != http.StatusBadRequest || !bytes.Contains(body, []byte(`"param":"seed"`)) {
		t.Errorf("%d: %s", resp.StatusCode, body)
	}
}

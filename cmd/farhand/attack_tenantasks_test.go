package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/ws/client"
)

// honestAsks are what a tenant does in an ordinary minute, at each of these pods: it uses all that attackers take. Its
// devices are connected to the first pod, or sleep.
func honestAsks(t *testing.T, urls ...string) (asks []honestAsk) {
	t.Helper()
	connectDevice(t, urls[0], "honest-asks", silentWipe())
	connectDevice(t, urls[0], "honest-nap", client.WithDevice("honest-nap", "", ""), echoTool())() // and sleeps
	link := heldLink(t, urls[0], fleetToken, "honest-link", 100_000)
	for _, url := range urls {
		asks = append(asks, honestReads(url)...)
		asks = append(asks, honestCalls(url)...)
		asks = append(asks, honestWaits(url)...)
		asks = append(asks, honestAsk{"download", []honestStep{{Method: http.MethodGet, URL: url + link}}})
	}
	return asks
}

func askPost(url, body string) honestStep {
	return honestStep{Method: http.MethodPost, URL: url, Body: body}
}

func askGet(url string) honestStep { return honestStep{Method: http.MethodGet, URL: url} }

// honestReads are lists, streams and sockets.
func honestReads(url string) []honestAsk {
	return []honestAsk{
		{"ready", []honestStep{askGet(url + "/readyz")}},
		{"list", []honestStep{askGet(url + "/api/tools")}},
		{"audit", []honestStep{askGet(url + "/api/audit?limit=1")}},
		{"export", []honestStep{askGet(url + "/api/audit?format=jsonl&limit=1")}},
		{"usage", []honestStep{askGet(url + "/api/usage")}},
		{"explain", []honestStep{askPost(url+"/api/policy/explain", `{"tool":"echo"}`)}},
		{"events", []honestStep{{Method: http.MethodGet, URL: url + "/api/events", Status: http.StatusOK,
			Leaves: true}}},
		{"device", []honestStep{{Method: http.MethodGet, URL: url + "/ws/chat?session_id=honest-{{n}}",
			Status: http.StatusSwitchingProtocols, Leaves: true, Header: map[string]string{
				"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
				"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}}}},
	}
}

// honestCalls are calls and turns.
func honestCalls(url string) []honestAsk {
	session := url + "/api/sessions/honest"
	mcp := askPost(url+"/mcp/sessions/honest",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"}}}`)
	mcp.Header = map[string]string{"Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": "2025-06-18"}
	completion := askPost(url+"/v1/chat/completions", `{"model":"farhand","messages":[{"role":"user","content":"go"}]}`)
	completion.Header = map[string]string{"X-Farhand-Session": "honest"}
	return []honestAsk{
		{"call", []honestStep{askPost(session+"/tools/echo/call", `{"args":{"text":"x"}}`)}},
		{"long call", []honestStep{askPost(session+"/tools/echo/call",
			`{"args":{"text":"`+strings.Repeat("b", 200_000)+`"}}`)}},
		{"group", []honestStep{askPost(url+"/api/calls",
			`{"tool":"echo","args":{"text":"x"},"target":{"session_ids":["honest"]}}`)}},
		{"mcp", []honestStep{mcp}},
		{"mcp server", []honestStep{askPost(url+"/api/tools/far__quick/call", `{"args":{}}`)}},
		{"message", []honestStep{askPost(session+"/messages", `{"content":"go"}`)}},
		{"completion", []honestStep{completion}},
		{"command", []honestStep{askPost(url+"/api/tools/exec/call", `{"args":{"command":"echo one >f; cat f"}}`)}},
		{"write", []honestStep{askPost(url+"/api/tools/write/call", `{"args":{"path":"g","content":"two"}}`)}},
	}
}

// honestWaits are requests that follow from one another.
func honestWaits(url string) []honestAsk {
	sum := sha256.Sum256([]byte("x"))
	return []honestAsk{
		{"async", []honestStep{
			askPost(url+"/api/sessions/honest/tools/echo/call", `{"args":{"text":"x"},"mode":"async"}`),
			askGet(url + "/api/calls/{{call_id}}?wait_ms=20000")}},
		{"queue", []honestStep{
			askPost(url+"/api/tools/echo/call",
				`{"args":{},"target":{"device_id":"honest-nap"},"queue":{"ttl_ms":60000}}`),
			{Method: http.MethodDelete, URL: url + "/api/calls/{{call_id}}"}}},
		{"approval", []honestStep{
			askPost(url+"/api/sessions/honest-asks/tools/wipe/call", `{"args":{},"mode":"async"}`),
			askPost(url+"/api/approvals/{{approval_id}}", `{"decision":"deny"}`)}},
		{"pairing", []honestStep{
			askPost(url+"/pair", `{"device_id":"door-`+url[len(url)-5:]+`-{{n}}"}`),
			askPost(url+"/api/pairings", `{"code":"{{code}}"}`),
			askPost(url+"/api/pairings/{{id}}", `{"decision":"approve"}`),
			askPost(url+"/pair/status", `{"secret":"{{secret}}"}`), // which leaves the place of the request
			{Method: http.MethodDelete, URL: url + "/api/devices/{{device_id}}"}}},
		{"upload", []honestStep{
			askPost(url+"/api/uploads", `{"size":1,"sha256":"`+hex.EncodeToString(sum[:])+
				`","mime_type":"text/plain"}`),
			{Method: http.MethodPut, URL: url + "{{url}}", Body: "x",
				Header: map[string]string{"Content-Type": "text/plain"}}}},
	}
}

// silentWipe is a tool that its caller may not call without approval.
func silentWipe() client.Option {
	return client.WithTool(client.Tool{Name: "wipe", Description: "erases everything"},
		func(context.Context, client.Call) (any, error) { return "wiped", nil })
}

// heldLink uploads a file, has a device called with it that does not answer, and returns the path that the device may
// read it from meanwhile.
func heldLink(t *testing.T, url, key, session string, size int) string {
	t.Helper()
	got := make(chan string, 1)
	connectDevice(t, url, session, client.WithToken(key), client.WithTool(
		client.Tool{Name: "show", Description: "shows a file", Timeout: 5 * time.Minute},
		func(ctx context.Context, c client.Call) (any, error) {
			var args struct{ File struct{ URL string } }
			_ = json.Unmarshal(c.Args, &args)
			got <- args.File.URL
			<-ctx.Done()
			return nil, ctx.Err()
		}))
	data := strings.Repeat("f", size)
	sum := sha256.Sum256([]byte(data))
	var slot struct {
		ID  string `json:"upload_id"`
		URL string `json:"url"`
	}
	ask := func(method, path, kind, body string, want int) {
		t.Helper()
		status, text := sendAs(t.Context(), key, method, url+path, kind, body)
		if status != want {
			t.Fatalf("%s %s: %d %s", method, path, status, text)
		}
		_ = json.Unmarshal(text, &slot)
	}
	const plain, asJSON = "text/plain", "application/json"
	ask(http.MethodPost, "/api/uploads", asJSON, fmt.Sprintf(`{"size":%d,"sha256":"%x","mime_type":"%s"}`, size, sum,
		plain), http.StatusCreated)
	ask(http.MethodPut, slot.URL, plain, data, http.StatusNoContent)
	ask(http.MethodPost, "/api/sessions/"+session+"/tools/show/call", asJSON,
		`{"mode":"async","timeout_ms":300000,"args":{"file":{"$upload":"`+slot.ID+`"}}}`, http.StatusAccepted)
	return testkit.Receive(t, "the link", got)
}

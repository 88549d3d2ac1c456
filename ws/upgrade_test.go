package ws_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/ws"
)

func TestTokenPlaces(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	noQuery := newGateway(t, func(c *ws.Config) { c.DenyQueryToken = true })
	for _, tc := range []struct {
		name     string
		gateway  *gateway
		query    string
		bearer   string
		protocol string
		accepted bool
		echo     string
	}{
		{name: "header", gateway: g, bearer: testToken, accepted: true},
		{name: "subprotocol", gateway: g, protocol: "clawseed.v1, bearer." + testToken, accepted: true,
			echo: "clawseed.v1"},
		{name: "subprotocol alone is not echoed", gateway: g, protocol: "bearer." + testToken, accepted: true},
		{name: "query", gateway: g, query: "token=" + testToken, accepted: true},
		{name: "unknown subprotocol is not echoed", gateway: g, query: "token=" + testToken, protocol: "mqtt",
			accepted: true},
		{name: "nothing", gateway: g},
		{name: "wrong header", gateway: g, bearer: "wrong"},
		{name: "wrong subprotocol", gateway: g, protocol: "clawseed.v1, bearer.wrong"},
		{name: "wrong query", gateway: g, query: "token=wrong"},
		{name: "the header wins over the others", gateway: g, bearer: "wrong", protocol: "bearer." + testToken,
			query: "token=" + testToken},
		{name: "the subprotocol wins over the query", gateway: g, protocol: "bearer.wrong",
			query: "token=" + testToken},
		{name: "an empty subprotocol token does not count", gateway: g, protocol: "bearer.",
			query: "token=" + testToken, accepted: true},
		{name: "query turned off", gateway: noQuery, query: "token=" + testToken},
	} {
		t.Run(tc.name, func(t *testing.T) {
			header := http.Header{}
			if tc.bearer != "" {
				header.Set("Authorization", "Bearer "+tc.bearer)
			}
			if tc.protocol != "" {
				header.Set("Sec-WebSocket-Protocol", tc.protocol)
			}
			if !tc.accepted {
				status, problem, got := tc.gateway.refusal(tc.query, header)
				if status != http.StatusUnauthorized || problem["code"] != "unauthenticated" ||
					got.Get("WWW-Authenticate") == "" {
					t.Fatalf("refused with %d %v", status, problem)
				}
				if got.Get("X-Farhand-Pod") != tc.gateway.pod.ID() {
					t.Fatalf("pod header %q", got.Get("X-Farhand-Pod"))
				}
				return
			}
			conn, resp, err := websocket.DefaultDialer.Dial(tc.gateway.url(tc.query), header)
			must(t, err)
			defer conn.Close()
			if got := resp.Header.Get("Sec-WebSocket-Protocol"); got != tc.echo {
				t.Fatalf("echoed %q, want %q", got, tc.echo)
			}
			if got := resp.Header.Get("X-Farhand-Pod"); got != tc.gateway.pod.ID() {
				t.Fatalf("pod header %q", got)
			}
			d := &device{t: t, conn: conn}
			d.expect("session_start")
		})
	}
}

func TestOrigins(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	host := strings.TrimPrefix(g.http.URL, "http://")
	for _, tc := range []struct {
		origin  string
		allowed bool
	}{
		{"https://console.example.com", true},
		{"https://CONSOLE.example.com", true},
		{"http://" + host, true},
		{"null", false},
		{"https://console.example.com.evil.test", false},
		{"https://console.example.com:8443", false},
		{"http://console.example.com", false},
		{"https://user@console.example.com", false},
	} {
		t.Run(tc.origin, func(t *testing.T) {
			header := http.Header{"Authorization": {"Bearer " + testToken}, "Origin": {tc.origin}}
			if tc.allowed {
				conn, _, err := websocket.DefaultDialer.Dial(g.url(""), header)
				must(t, err)
				must(t, conn.Close())
				return
			}
			if status, problem, _ := g.refusal("", header); status != http.StatusForbidden ||
				problem["code"] != "forbidden" {
				t.Fatalf("refused with %d %v", status, problem)
			}
		})
	}
}

func TestRefusedParameters(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	auth := http.Header{"Authorization": {"Bearer " + testToken}}
	for name, tc := range map[string]struct{ query, field string }{
		"session id with a space": {query("session_id", "a b"), "session_id"},
		"session id with braces":  {query("session_id", "{x}"), "session_id"},
		"session id too long":     {query("session_id", strings.Repeat("x", 129)), "session_id"},
		"name too long":           {query("name", strings.Repeat("x", 257)), "name"},
		"name with a line break":  {query("name", "a\nb"), "name"},
		"name not UTF-8":          {"name=%ff", "name"},
	} {
		t.Run(name, func(t *testing.T) {
			status, problem, _ := g.refusal(tc.query, auth)
			detail, _ := problem["detail"].(string)
			if status != http.StatusBadRequest || problem["code"] != "invalid_request" ||
				!strings.Contains(detail, tc.field) {
				t.Fatalf("refused with %d %v", status, problem)
			}
		})
	}
	g.connect("still-serving").alive()
}

func TestNotAHandshake(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	for method, want := range map[string]int{http.MethodGet: http.StatusBadRequest,
		http.MethodPost: http.StatusBadRequest} {
		req, err := http.NewRequest(method, g.http.URL+"/ws/chat", nil)
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+testToken)
		resp, err := g.http.Client().Do(req)
		must(t, err)
		body, err := io.ReadAll(resp.Body)
		must(t, err)
		must(t, resp.Body.Close())
		if resp.StatusCode != want || !strings.Contains(string(body), `"code":"invalid_request"`) {
			t.Errorf("%s: %d %s", method, resp.StatusCode, body)
		}
	}
	g.http.Client().CloseIdleConnections()
}

func TestSessionStart(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	first := g.dialWith(websocket.DefaultDialer, query("session_id", "phone-1", "name", "Kitchen"))
	start := first.expect("session_start")
	if start["v"] != 1.0 || start["session_id"] != "phone-1" || start["resumed"] != false ||
		start["message_count"] != 0.0 || start["name"] != "Kitchen" {
		t.Fatalf("session_start: %v", start)
	}
	unnamed := g.dialWith(websocket.DefaultDialer, "")
	start = unnamed.expect("session_start")
	if id, _ := start["session_id"].(string); len(id) != 36 {
		t.Fatalf("made session id %q", id)
	}
	if _, there := start["name"]; there {
		t.Fatalf("a name nobody gave: %v", start)
	}
	second := g.dial("phone-1")
	if start := second.expect("session_start"); start["resumed"] != true {
		t.Fatalf("session_start after a reconnect: %v", start)
	}
	first.expectClose(ws.CloseReplaced)
}

func TestCompressionIsNotNegotiated(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	dialer := websocket.Dialer{EnableCompression: true}
	conn, resp, err := dialer.Dial(g.url("token="+testToken), nil)
	must(t, err)
	defer conn.Close()
	if ext := resp.Header.Get("Sec-WebSocket-Extensions"); ext != "" {
		t.Fatalf("negotiated %q", ext)
	}
}

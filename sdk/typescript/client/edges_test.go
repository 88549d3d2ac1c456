package client_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
)

// bad is a gateway that answers each request with the next of its answers, and notes the requests.
type bad struct {
	mu      sync.Mutex
	answers map[string][]string // by method and path; the last one is for all further requests
	heard   map[string][]heard
}

// heard is what a request said.
type heard struct {
	Key         string `json:"idempotency_key"`
	authorized  bool
	lastEventID string
}

// ServeHTTP implements http.Handler. An answer is "status headers body", "drop", or "after METHOD PATH: answer", which
// waits for a request.
func (b *bad) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	route := r.Method + " " + r.URL.Path
	body, _ := io.ReadAll(r.Body)
	said := heard{authorized: r.Header.Get("Authorization") != "", lastEventID: r.Header.Get("Last-Event-ID")}
	_ = json.Unmarshal(body, &said) // only calls have keys
	b.mu.Lock()
	b.heard[route] = append(b.heard[route], said)
	answers := b.answers[route]
	if len(answers) > 1 {
		b.answers[route] = answers[1:]
	}
	b.mu.Unlock()
	if len(answers) == 0 {
		http.Error(w, "no such route: "+route, http.StatusTeapot)
		return
	}
	answer := answers[0]
	if answer == "drop" {
		panic(http.ErrAbortHandler)
	}
	status, rest, _ := strings.Cut(answer, " ")
	for {
		name, value, ok := strings.Cut(rest, "=")
		if !ok || strings.ContainsAny(name, ` {:`) {
			break
		}
		value, rest, _ = strings.Cut(value, " ")
		w.Header().Set(name, value)
	}
	w.WriteHeader(map[string]int{
		"200": 200, "202": 202, "204": 204, "302": 302, "404": 404, "409": 409, "429": 429, "502": 502, "503": 503,
	}[status])
	_, _ = io.WriteString(w, rest)
}

// requests returns those of a route.
func (b *bad) requests(route string) []heard {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.heard[route]
}

// Answers of a gateway.
const (
	accepted  = `202 {"call_id":"c1","mode":"async","state":"accepted"}`
	succeeded = `200 {"call_id":"c1","state":"succeeded","success":true,"output":"ok","dispatched":"yes"}`
	cancelled = `200 {"call_id":"c1","state":"cancelled","dispatched":"yes",` +
		`"problem":{"code":"cancelled","detail":"x"}}`
	draining = `503 Retry-After=1 {"code":"draining","detail":"x","dispatched":"no","retryable":true}`
	limited  = `429 Retry-After=900 {"code":"rate_limited","detail":"x","dispatched":"no","retryable":true}`
	offline  = `409 {"code":"not_connected","detail":"x","dispatched":"no","retryable":true}`
	expired  = `200 {"call_id":"c1","state":"expired","dispatched":"no","retryable":true,` +
		`"problem":{"code":"lost","detail":"x"}}`
	proxys = `502 <html>`
)

// Routes of a call.
const (
	post   = "POST /api/tools/work/call"
	get    = "GET /api/calls/c1"
	cancel = "DELETE /api/calls/c1"
)

// edge is one thing that testdata/edges.mjs does with a gateway that behaves badly, and what it then prints.
type edge struct {
	name, does string
	answers    map[string][]string
	want       string
	asked      map[string]int
}

// TestEdges plays a gateway badly: the client asks again exactly if that is safe, and its errors say no more than it
// knows.
func TestEdges(t *testing.T) {
	t.Parallel()
	for _, tt := range []edge{
		{"drains", "call", map[string][]string{post: {draining, accepted}, get: {succeeded}}, "ok",
			map[string]int{post: 2, get: 1}},
		{"no answer", "call", map[string][]string{post: {"drop", "drop", accepted}, get: {"drop", proxys, succeeded}},
			"ok", map[string]int{post: 3, get: 3}},
		{"no answer without a key", "once", map[string][]string{post: {"drop"}}, "unreachable unknown false undefined",
			map[string]int{post: 1}},
		{"drains without a key", "once", map[string][]string{post: {draining, succeeded}}, "ok",
			map[string]int{post: 2}},
		{"begins again", "call", map[string][]string{post: {accepted}, get: {expired, succeeded}}, "ok",
			map[string]int{post: 2, get: 2}},
		{"offline", "call", map[string][]string{post: {offline}}, "not_connected no true undefined",
			map[string]int{post: 1}},
		{"too long to wait", "call", map[string][]string{post: {limited}}, "rate_limited no true 900000",
			map[string]int{post: 1}},
		{"doubt", "call", map[string][]string{post: {"drop", limited}}, "rate_limited unknown false 900000",
			map[string]int{post: 2}},
		{"the record is gone", "call",
			map[string][]string{post: {accepted}, get: {`404 {"code":"call_not_found","detail":"x"}`}},
			"call_not_found unknown false undefined", map[string]int{post: 1, get: 1}},
		{"cancelled before it has an id", "cancel",
			map[string][]string{post: {accepted}, get: {succeeded}, cancel: {cancelled}},
			"cancelled yes false undefined enough", map[string]int{post: 1, cancel: 1}},
		{"cancelled too late", "cancel", map[string][]string{post: {accepted}, cancel: {succeeded}}, "ok",
			map[string]int{post: 1, cancel: 1}},
		{"cancelled in a pause", "pause", map[string][]string{post: {draining}},
			"cancelled no false undefined enough", map[string]int{post: 1}},
		{"follows", "follow", map[string][]string{"GET /api/calls/c1/events": {
			"200 Content-Type=text/event-stream : hi\r\n\r\nid: 1\r\nevent: state\r\ndata: {\"type\":\r\n" +
				"data: \"state\"}\r\n\r\n",
			"drop", "200 Content-Type=text/event-stream id: 2\nevent: state\ndata: {\"state\":\"succeeded\"}\n\n"}},
			`[{"type":"state"},{"state":"succeeded"}]`, map[string]int{"GET /api/calls/c1/events": 3}},
		{"files", "file", map[string][]string{post: {`200 {"call_id":"c1","state":"succeeded",` +
			`"success":true,"output":"","parts":[{"type":"file","mime_type":"a/b","size":2,"url":"/blobs/x"}]}`},
			"GET /blobs/x": {"200 hi"}},
			"2 a/b hi", map[string]int{"GET /blobs/x": 1}},
	} {
		t.Run(tt.name, tt.play)
	}
}

// TestBounds shows what the client does not do: wait for too long, send its token elsewhere, or call a tool that ran a
// failure.
func TestBounds(t *testing.T) {
	t.Parallel()
	for _, tt := range []edge{
		{"images", "images", map[string][]string{
			"GET /api/tools/openai": {`200 {"tools":[{"type":"function","function":{"name":"work"}}]}`},
			post:                    {accepted},
			get: {`200 {"call_id":"c1","state":"succeeded","success":true,"output":"ok","parts":[` +
				`{"type":"image","mime_type":"image/png","size":2,"url":"/blobs/gone"},` +
				`{"type":"image","mime_type":"image/svg+xml","size":2,"url":"/blobs/svg"},` +
				`{"type":"image","mime_type":"image/png","size":5242881,"url":"/blobs/large"},` +
				`{"type":"image","mime_type":"image/png","size":2,"url":"/blobs/x"}]}`},
			"GET /blobs/gone": {`404 {"code":"not_found","detail":"x"}`}, "GET /blobs/x": {"200 hi"},
		}, `["ok\n[image, image/png, 2 bytes]\n[image, image/svg+xml, 2 bytes]\n` +
			`[image, image/png, 5242881 bytes]\n[image, image/png, 2 bytes]","aGk="]`,
			map[string]int{"GET /blobs/gone": 1, "GET /blobs/svg": 0, "GET /blobs/large": 0, "GET /blobs/x": 1}},
		{"too long to wait for the end", "call", map[string][]string{post: {accepted}, get: {limited}},
			"rate_limited unknown false 900000", map[string]int{post: 1, get: 1}},
		{"too long to wait for events", "follow", map[string][]string{"GET /api/calls/c1/events": {limited}},
			"rate_limited no true 900000", map[string]int{"GET /api/calls/c1/events": 1}},
		{"too long to wait for a decision", "approval", map[string][]string{"GET /api/approvals/a1": {limited}},
			"rate_limited no true 900000", map[string]int{"GET /api/approvals/a1": 1}},
		{"cancels again", "again", map[string][]string{cancel: {`404 {"code":"forbidden","detail":"x"}`, cancelled}},
			"forbidden cancelled, 1 then 0 listeners", map[string]int{cancel: 2}},
		{"another origin", "origin", nil, "TypeError TypeError", nil},
		{"files elsewhere", "elsewhere", map[string][]string{
			post: {`200 {"call_id":"c1","state":"succeeded","success":true,"output":"","parts":[` +
				`{"type":"file","mime_type":"a/b","size":2,"url":"http://localhost:1/x"},` +
				`{"type":"file","mime_type":"a/b","size":2,"url":"/blobs/away"}]}`},
			"GET /blobs/away": {"302 Location=/blobs/inner x"}, "GET /blobs/inner": {"200 inner"},
		}, "not_found redirected", map[string]int{"GET /blobs/inner": 0}},
		{"a slow token", "token", nil, "enough", nil},
		{"a failing token", "failing", nil, "no token", nil},
	} {
		t.Run(tt.name, tt.play)
	}
}

func (tt edge) play(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/edges.mjs")
	must(t, err)
	b := &bad{answers: tt.answers, heard: make(map[string][]heard)}
	server := httptest.NewServer(b)
	defer server.Close()
	lines, ok := startNode(t, nil, string(text), server.URL, tt.does).rest(t)
	if !ok || len(lines) != 1 || lines[0] != tt.want {
		t.Errorf("it prints %q, want %q", lines, tt.want)
	}
	for route, n := range tt.asked {
		all := b.requests(route)
		if len(all) != n {
			t.Errorf("%s was requested %d times, want %d", route, len(all), n)
		}
		for _, one := range all {
			if keyed := tt.does != "once" && tt.does != "file" && tt.does != "elsewhere"; route == post &&
				(one.Key != all[0].Key ||
					keyed != (one.Key != "")) {
				t.Errorf("the keys are %+v", all)
			}
			if one.authorized == strings.HasPrefix(route, "GET /blobs") {
				t.Errorf("%s: authorized: %t", route, one.authorized)
			}
		}
	}
	if tt.name == "follows" && b.requests("GET /api/calls/c1/events")[2].lastEventID != "1" {
		t.Error("it does not continue after the last event")
	}
}

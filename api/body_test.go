package api_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
)

func TestBadBodies(t *testing.T) {
	f := newFleet(t, setup{})
	d := f.connect(0, session("s1"), echo, tools("t")...)
	for name, tt := range map[string]struct{ body, mention string }{
		"not JSON":              {`{"args":`, "JSON"},
		"array":                 {`[]`, "object"},
		"null":                  {`null`, "object"},
		"number":                {`1`, "object"},
		"trailing object":       {`{} {}`, "JSON"},
		"trailing garbage":      {`{}x`, "JSON"},
		"unknown field":         {`{"argz":{}}`, `"argz"`},
		"unknown nested field":  {`{"target":{"sesion_id":"x"}}`, `"target.sesion_id"`},
		"case variant":          {`{"Args":{}}`, `"Args"`},
		"case variant beside":   {`{"args":{},"ARGS":{}}`, `"ARGS"`},
		"nested case variant":   {`{"target":{"Session_ID":"x"}}`, `"target.Session_ID"`},
		"duplicate":             {`{"args":{},"args":{}}`, `"args"`},
		"escaped duplicate":     {`{"args":{},"\u0061rgs":{}}`, `"args"`},
		"duplicate in target":   {`{"target":{"user_id":"a","user_id":"b"}}`, `"target.user_id"`},
		"duplicate label":       {`{"target":{"labels":{"a":"1","a":"2"}}}`, `"target.labels.a"`},
		"duplicate in args":     {`{"args":{"x":{"y":1,"y":2}}}`, `"args.x.y"`},
		"duplicate in array":    {`{"args":{"x":[{"y":1,"y":2}]}}`, `"args.x.0.y"`},
		"half a character":      {`{"args":{"x":"\ud800"}}`, `surrogate`},
		"args array":            {`{"args":[]}`, `"args"`},
		"args null":             {`{"args":null}`, `"args"`},
		"args string":           {`{"args":"{}"}`, `"args"`},
		"target string":         {`{"target":"s1"}`, `"target"`},
		"target null":           {`{"target":null}`, `"target"`},
		"session number":        {`{"target":{"session_id":1}}`, `"target.session_id"`},
		"session empty":         {`{"target":{"session_id":""}}`, `"target.session_id"`},
		"device empty":          {`{"target":{"device_id":""}}`, `"target.device_id"`},
		"labels array":          {`{"target":{"labels":[]}}`, `"target.labels"`},
		"labels null":           {`{"target":{"labels":null}}`, `"target.labels"`},
		"label number":          {`{"target":{"labels":{"a":1}}}`, `"target.labels.a"`},
		"timeout zero":          {`{"timeout_ms":0}`, `"timeout_ms"`},
		"timeout negative":      {`{"timeout_ms":-1}`, `"timeout_ms"`},
		"timeout very negative": {`{"timeout_ms":-99999999999999999999}`, `"timeout_ms"`},
		"timeout fraction":      {`{"timeout_ms":1.5}`, `"timeout_ms"`},
		"timeout string":        {`{"timeout_ms":"1000"}`, `"timeout_ms"`},
		"timeout null":          {`{"timeout_ms":null}`, `"timeout_ms"`},
		"mode other":            {`{"mode":"later"}`, `"mode"`},
		"mode number":           {`{"mode":1}`, `"mode"`},
		"key empty":             {`{"idempotency_key":""}`, `"idempotency_key"`},
		"key number":            {`{"idempotency_key":1}`, `"idempotency_key"`},
		"key with a space":      {`{"idempotency_key":"a b"}`, "idempotency key"},
		"key too long":          {`{"idempotency_key":"` + strings.Repeat("k", 256) + `"}`, "idempotency key"},
		"select other":          {`{"select":"oldest"}`, `"select"`},
		"select empty":          {`{"select":""}`, `"select"`},
		"invalid UTF-8":         {"{\"args\":{\"a\":\"\xff\"}}", "UTF-8"},
		"NUL byte":              {"{\"args\":{}}\x00", "JSON"},
		"byte order mark":       {"\ufeff{}", "JSON"},
		"deep": {`{"args":` + strings.Repeat(`{"a":`, 65) + `1` + strings.Repeat(`}`, 65) + `}`,
			"nest"},
		"very deep":                {strings.Repeat(`[`, 100_000), "nest"},
		"very deep, closed":        {strings.Repeat(`[`, 50_000) + strings.Repeat(`]`, 50_000), "nest"},
		"single quotes":            {`{'args':{}}`, "JSON"},
		"comment":                  {`{/* */}`, "JSON"},
		"trailing comma":           {`{"args":{},}`, "JSON"},
		"number out of all bounds": {`{"args":{"n":1e}}`, "JSON"},
	} {
		p := wantProblem(f.post("/api/tools/t/call", tt.body), 400, registry.CodeInvalidRequest)
		if !strings.Contains(p.Detail, tt.mention) {
			t.Errorf("%s: the detail does not mention %s: %s", name, tt.mention, p.Detail)
		}
		if p.Dispatched != registry.DispatchedNo || *p.Retryable {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if len(d.calls) != 0 {
		t.Errorf("%d calls reached the device", len(d.calls))
	}
}

func TestArgumentsReachTheDeviceAsSent(t *testing.T) {
	f := newFleet(t, setup{})
	d := f.connect(0, session("s1"), echo, tools("t")...)
	for _, args := range []string{
		`{"n":1e999,"m":-0.0,"big":123456789012345678901234567890}`, `{ "spaces" :  1 }`, `{"a":"\u0041\ud83d\ude00"}`,
		`{"A":1,"a":2}`, `{"html":"<b>&</b>"}`, `{"null":null}`,
		strings.Repeat(`{"a":`, 64) + `1` + strings.Repeat(`}`, 64),
	} {
		r := f.post("/api/tools/t/call", `{"args":`+args+`}`)
		decode[answer](r, 200)
		if sent := d.delivered(); sent.Args.String() != args {
			t.Errorf("sent %s, delivered %s", args, sent.Args)
		}
	}
}

func TestMediaTypes(t *testing.T) {
	f := newFleet(t, setup{})
	f.connect(0, session("s1"), echo, tools("t")...)
	for media, status := range map[string]int{
		"":                                  200,
		"application/json":                  200,
		"Application/JSON; charset=UTF-8":   200,
		"application/vnd.example+json":      200,
		"text/plain":                        415,
		"text/json":                         415,
		"application/x-www-form-urlencoded": 415,
		"multipart/form-data; boundary=x":   415,
		"application/json; charset=utf-16":  415,
		"application/jsonp":                 415,
		"application/json, text/plain":      415,
		"; broken":                          415,
	} {
		header := http.Header{"Content-Type": {media}}
		if media == "" {
			header = http.Header{"Content-Type": nil}
		}
		r := f.send(request{method: http.MethodPost, path: "/api/tools/t/call", body: `{}`, header: header})
		if r.status != status {
			t.Errorf("%q: status %d, want %d: %s", media, r.status, status, r.body)
		}
		if status == 415 {
			wantProblem(r, 415, registry.CodeUnsupportedMedia)
		}
	}
	wantProblem(f.send(request{
		method: http.MethodPost, path: "/api/tools/t/call", body: `{}`,
		header: http.Header{"Content-Encoding": {"gzip"}},
	}), 415, registry.CodeUnsupportedMedia)
}

func TestIdempotencyKeyHeader(t *testing.T) {
	f := newFleet(t, setup{})
	f.connect(0, session("s1"), echo, tools("t")...)
	for _, tt := range []struct {
		header []string
		body   string
		status int
	}{
		{[]string{"a"}, "", 200},
		{[]string{"b"}, `{"idempotency_key":"b"}`, 200},
		{[]string{"c"}, `{"idempotency_key":"d"}`, 400},
		{[]string{"e", "e"}, "", 400},
		{[]string{""}, "", 400},
		{[]string{"with space"}, "", 400},
	} {
		r := f.send(request{
			method: http.MethodPost, path: "/api/tools/t/call", body: tt.body,
			header: http.Header{"Idempotency-Key": tt.header},
		})
		if r.status != tt.status {
			t.Errorf("header %q, body %s: status %d, want %d: %s", tt.header, tt.body, r.status, tt.status, r.body)
		}
	}
}

func TestBodyLimit(t *testing.T) {
	f := newFleet(t, setup{change: func(c *api.Config) { c.MaxBody = 1000 }})
	f.connect(0, session("s1"), echo, tools("t")...)
	body := func(n int) string {
		frame := `{"args":{"a":""}}`
		return `{"args":{"a":"` + strings.Repeat("x", n-len(frame)) + `"}}`
	}
	decode[answer](f.post("/api/tools/t/call", body(1000)), 200)
	p := wantProblem(f.post("/api/tools/t/call", body(1001)), 413, registry.CodePayloadTooLarge)
	if !strings.Contains(p.Detail, "1000 bytes") || p.Dispatched != registry.DispatchedNo {
		t.Errorf("problem %+v", p)
	}
	// Not valid JSON either: the size is looked at first.
	wantProblem(f.post("/api/tools/t/call", strings.Repeat("[", 2000)), 413, registry.CodePayloadTooLarge)
}

// A caller that sends far too much still learns why it is refused, whether it says how much is coming or not.
func TestHugeBody(t *testing.T) {
	f := newFleet(t, setup{})
	server := f.pods[0].server
	for _, length := range []int64{64 << 20, -1} {
		req, err := http.NewRequest(http.MethodPost, server.URL+"/api/tools/t/call", io.LimitReader(spaces{}, 64<<20))
		f.must(err)
		req.ContentLength = length
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := server.Client().Do(req)
		f.must(err)
		resp.Body.Close()
		if resp.StatusCode != 413 {
			t.Errorf("length %d: status %d", length, resp.StatusCode)
		}
	}
}

// spaces is an endless reader.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

package blackbox

import "cmp"

// exchange is a request, and the answer to it. $session is the device's, $admin and $key are credentials; other names
// are those of keep.
type exchange struct {
	name, method, path, body string

	accept   string // by default JSON
	as       string // credential: admin, key (a caller's; the default) or anonymous
	soon     bool   // the status may come within limit
	status   int
	want     string // JSON that the answer contains, or text of a stream; "…" is any value
	replayed bool   // the answer is that of an earlier request
	keep     map[string]string
}

// by returns the name of the request's credential.
func (e exchange) by() string { return cmp.Or(e.as, "key") }

const (
	toolsPath = "/api/sessions/$session/tools/"
	bothForms = "application/json, text/event-stream" // as MCP has clients accept
	echoPath  = toolsPath + "conformance_echo/call"
)

// exchanges are made one after the other while the device is connected.
var exchanges = []exchange{
	{name: "health", method: "GET", path: "/healthz", as: "anonymous", status: 200, want: `{"status":"ok"}`},
	{name: "ready", method: "GET", path: "/readyz", as: "anonymous", status: 200, want: `{"status":"ready"}`},
	{
		name: "no credential", method: "GET", path: "/api/tools", as: "anonymous", status: 401,
		want: `{"code":"unauthenticated","status":401,"detail":"…"}`,
	},
	{
		name: "a caller's key", method: "POST", path: "/api/keys", as: "admin", status: 201,
		body: `{"name":"conformance","tenant":"default","roles":["caller"]}`,
		want: `{"id":"…","key":"…"}`, keep: map[string]string{"key": "key", "id": "id"},
	},
	{name: "me", method: "GET", path: "/api/me", soon: true, status: 200, want: `{"roles":["caller"]}`},
	{
		name: "not a caller's right", method: "GET", path: "/api/keys", status: 403, want: `{"code":"forbidden"}`,
	},
	{
		name: "tools", method: "GET", path: "/api/tools?session_id=$session", status: 200,
		want: `{"tools":[{"name":"conformance_echo","session_id":"$session","parameters":{"required":["text"]}},
			{"name":"conformance_ask","approval":"required"},{"name":"conformance_wait"}]}`,
	},
	{
		name: "one session", method: "GET", path: "/api/sessions/$session", status: 200,
		want: `{"session_id":"$session","connected":true,"platform":"test"}`,
	},
	{
		name: "a call", method: "POST", path: echoPath, body: `{"args":{"text":"hello"}}`, status: 200,
		want: `{"state":"succeeded","success":true,"output":"hello","session_id":"$session","call_id":"…"}`,
	},
	{
		name: "a call by name", method: "POST", path: "/api/tools/conformance_echo/call", status: 200,
		body: `{"args":{"text":"by name"},"target":{"device_id":"$session"}}`, want: `{"output":"by name"}`,
	},
	{
		name: "wrong arguments", method: "POST", path: echoPath, body: `{"args":{"text":7}}`, status: 422,
		want: `{"code":"invalid_arguments","dispatched":"no"}`,
	},
	{
		name: "no such tool", method: "POST", path: toolsPath + "conformance_none/call", body: `{}`, status: 404,
		want: `{"code":"tool_not_found","dispatched":"no"}`,
	},
	{
		name: "an asynchronous call", method: "POST", path: echoPath, status: 202,
		body: `{"args":{"text":"later"},"mode":"async"}`, want: `{"mode":"async"}`,
		keep: map[string]string{"call": "call_id"},
	},
	{
		name: "its record", method: "GET", path: "/api/calls/$call?wait_ms=20000", status: 200,
		want: `{"call_id":"$call","state":"succeeded","dispatched":"yes","output":"later"}`,
	},
	{
		name: "its log", accept: "text/event-stream", method: "GET", path: "/api/calls/$call/events", status: 200,
		want: `"state":"succeeded"`,
	},
	{
		name: "a call with a key", method: "POST", path: echoPath, status: 200,
		body: `{"args":{"text":"once"},"idempotency_key":"$session-1"}`, want: `{"output":"once"}`,
		keep: map[string]string{"once": "call_id"},
	},
	{
		name: "the same again", method: "POST", path: echoPath, status: 200, replayed: true,
		body: `{"args":{"text":"once"},"idempotency_key":"$session-1"}`, want: `{"output":"once","call_id":"$once"}`,
	},
	{
		name: "another call with its key", method: "POST", path: echoPath, status: 409,
		body: `{"args":{"text":"twice"},"idempotency_key":"$session-1"}`, want: `{"code":"idempotency_conflict"}`,
	},
	{
		name: "a call that takes long", method: "POST", path: toolsPath + "conformance_wait/call", status: 202,
		body: `{"mode":"async"}`, keep: map[string]string{"long": "call_id"},
	},
	{
		name: "its end", method: "DELETE", path: "/api/calls/$long", status: 200,
		want: `{"call_id":"$long","state":"cancelled"}`,
	},
	{
		name: "a group call", method: "POST", path: "/api/calls", status: 200,
		body: `{"tool":"conformance_echo","args":{"text":"all"},"target":{"session_ids":["$session"]}}`,
		want: `{"state":"succeeded","results":[{"session_id":"$session","output":"all"}],
			"counts":{"devices":1,"succeeded":1}}`,
		keep: map[string]string{"group": "call_id"},
	},
	{
		name: "a call that needs approval", method: "POST", path: toolsPath + "conformance_ask/call", status: 202,
		body: `{"args":{"text":"may I"},"mode":"async"}`, want: `{"approval_id":"…"}`,
		keep: map[string]string{"asked": "call_id", "approval": "approval_id"},
	},
	{
		name: "the approval", method: "GET", path: "/api/approvals/$approval", as: "admin", status: 200,
		want: `{"id":"$approval","state":"pending","tool":"conformance_ask","args":{"text":"may I"}}`,
	},
	{
		name: "not a caller's decision", method: "POST", path: "/api/approvals/$approval", status: 403,
		body: `{"decision":"allow-once"}`, want: `{"code":"forbidden"}`,
	},
	{
		name: "the decision", method: "POST", path: "/api/approvals/$approval", as: "admin", status: 200,
		body: `{"decision":"allow-once"}`, want: `{"id":"$approval","state":"allowed"}`,
	},
	{
		name: "the allowed call", method: "GET", path: "/api/calls/$asked?wait_ms=20000", status: 200,
		want: `{"state":"succeeded","output":"may I"}`,
	},
	{
		name: "MCP: initialize", accept: bothForms, method: "POST", path: "/mcp", status: 200,
		body: `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},
			"clientInfo":{"name":"conformance","version":"1"}}}`,
		want: `{"id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},
			"serverInfo":{"name":"…"}}}`,
	},
	{
		name: "MCP: tools/list", accept: bothForms, method: "POST", path: "/mcp/sessions/$session", status: 200,
		body: `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`,
		want: `{"id":2,"result":{"tools":[{"name":"conformance_echo","inputSchema":{"type":"object"}}]}}`,
	},
	{
		name: "MCP: tools/call", accept: bothForms, method: "POST", path: "/mcp/sessions/$session", status: 200,
		body: `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"conformance_echo",
			"arguments":{"text":"over MCP"}}}`,
		want: `{"id":3,"result":{"content":[{"type":"text","text":"over MCP"}]}}`,
	},
	{
		name: "OpenAI: no such model", method: "POST", path: "/v1/chat/completions", status: 404,
		body: `{"model":"conformance-none","messages":[{"role":"user","content":"hello"}]}`,
		want: `{"error":{"code":"model_not_found","message":"…"}}`,
	},
	{name: "pods", method: "GET", path: "/api/pods", as: "admin", status: 200, want: `{"pods":[{"pod":"…"}]}`},
}

// asleep are made after the device has disconnected.
var asleep = []exchange{
	{
		name: "the device sleeps", method: "GET", path: "/api/sessions?presence=sleeping&device_id=$session",
		status: 200,
	},
	{
		name: "a queued call", method: "POST", path: "/api/tools/conformance_echo/call", soon: true, status: 202,
		body: `{"args":{"text":"awake"},"target":{"device_id":"$session"},"queue":{"ttl_ms":600000}}`,
		want: `{"state":"queued","place":1,"expires_at":"…"}`, keep: map[string]string{"queued": "call_id"},
	},
	{
		name: "the queue", method: "GET", path: "/api/devices/$session/queue", status: 200,
		want: `{"calls":[{"call_id":"$queued"}]}`,
	},
}

// awake are made after it has connected again.
var awake = []exchange{
	{
		name: "the queued call has run", method: "GET", path: "/api/calls/$queued?wait_ms=25000", status: 200,
		want: `{"state":"succeeded","output":"awake"}`,
	},
	{name: "no key any more", method: "DELETE", path: "/api/keys/$id", as: "admin", status: 204},
	{
		name: "a revoked key", method: "GET", path: "/api/me", soon: true, status: 401,
		want: `{"code":"unauthenticated"}`,
	},
}

package farhand_test

// line says what a route answers. Who has none of the roles gets 403, and who has no valid credential 401; what belongs
// to another user or tenant is answered as what does not exist. An admin sees what belongs to any user of the tenant.
type line struct {
	route   string // method and path, as in the OpenAPI document
	who     string // the roles that may use it, beside admin; everybody: also without a credential
	thing   string // what {id} means, in the path and the body; empty: nothing that belongs to anybody
	own     int    // the status of a request about one's own thing
	foreign int    // and about what may not be seen
	body    string
}

const (
	everybody = "everybody"
	admins    = "admin"
	operators = "operator" // of the fleet; no admin is one
)

// matrix has a line for each route. A route without one fails the test.
var matrix = []line{
	{"GET /api/tools", "caller", "", 200, 0, ""},
	{"GET /api/tools/grouped", "caller", "", 200, 0, ""},
	{"GET /api/tools/openai", "caller", "", 200, 0, ""},
	{"GET /api/tools/anthropic", "caller", "", 200, 0, ""},
	{"GET /api/tools/mcp", "caller", "", 200, 0, ""},
	{"POST /api/tools/{name}/call", "caller", "session", 200, 404, `{"target":{"session_id":"{id}"}}`},
	{"GET /api/limits", "caller approver", "", 200, 0, ""},
	{"GET /api/me", "caller approver", "", 200, 0, ""},
	{"GET /api/sessions", "caller", "", 200, 0, ""},
	{"GET /api/sessions/running", "caller", "", 200, 0, ""},
	{"GET /api/sessions/{id}", "caller", "session", 200, 404, ""},
	{"PUT /api/sessions/{id}", "caller", "session", 200, 404, `{"name":"mine"}`},
	{"DELETE /api/sessions/{id}", "caller", "session", 204, 404, ""},
	{"GET /api/sessions/{id}/state", "caller", "session", 200, 404, ""},
	{"POST /api/sessions/{id}/abort", "caller", "session", 200, 404, `{}`},
	{"POST /api/sessions/{id}/tools/{name}/call", "caller", "session", 200, 404, `{}`},
	{"GET /api/sessions/{id}/messages", "caller", "session", 200, 404, ""},
	{"POST /api/sessions/{id}/messages", "caller", "session", 200, 404, `{"content":"hi"}`},
	{"GET /api/calls", "caller", "", 200, 0, ""},
	{"POST /api/calls", "caller", "", 200, 0, `{"tool":"look"}`},
	{"GET /api/calls/{id}", "caller", "call", 200, 404, ""},
	{"DELETE /api/calls/{id}", "caller", "call", 200, 404, ""},
	{"GET /api/calls/{id}/events", "caller", "call", 200, 404, ""},
	{"GET /api/devices/{id}/queue", "caller", "", 404, 0, ""}, // no such device is known
	{"GET /api/events", "caller approver", "", 200, 0, ""},
	{"POST /api/events/tickets", "caller approver", "", 201, 0, `{}`},
	{"POST /v1/chat/completions", "caller", "session", 200, 404,
		`{"model":"farhand","messages":[{"role":"user","content":"hi"}]}`},
	{"POST /mcp", "caller", "", 200, 0, mcpList},
	{"POST /mcp/users/{id}", "caller", "", 200, 0, mcpList},
	{"POST /mcp/sessions/{id}", "caller", "session", 200, 404, mcpList},
	{"GET /v1/models", "caller", "", 200, 0, ""},
	{"GET /v1/models/{model}", "caller", "", 200, 0, ""},
	{"GET /", everybody, "", 200, 0, ""},
	{"GET /healthz", everybody, "", 200, 0, ""},
	{"GET /health", everybody, "", 200, 0, ""},
	{"GET /readyz", everybody, "", 200, 0, ""},
	{"GET /openapi.json", everybody, "", 200, 0, ""},
	{"GET /sign-in", everybody, "", 200, 0, ""},
	{"GET /.well-known/oauth-protected-resource", everybody, "", 404, 0, ""}, // without an authorization server
	{"GET /.well-known/oauth-protected-resource/{path}", everybody, "", 404, 0, ""},
	{"GET /api/keys", admins, "", 200, 0, ""},
	{"POST /api/keys", admins, "", 201, 0, `{"roles":["caller"],"user_id":"anna"}`},
	{"DELETE /api/users/{id}", admins, "", 200, 0, ""},             // of a user with this id, of which there is nothing
	{"GET /api/users/{id}/default-device", admins, "", 404, 0, ""}, // also the user, whom no actor is
	{"PUT /api/users/{id}/default-device", admins, "", 200, 0, `{"device_id":"phone"}`},
	{"DELETE /api/users/{id}/default-device", admins, "", 204, 0, ""},
	{"POST /api/keys/{id}/rotate", admins, "key", 200, 404, `{"overlap":60}`},
	{"DELETE /api/keys/{id}", admins, "key", 204, 404, ""},
	{"POST /api/revocations", admins, "", 200, 0, `{"user_id":"zed"}`},
	{"GET /api/usage", "caller", "", 200, 0, ""},
	{"GET /api/audit", admins, "", 200, 0, ""},
	{"GET /api/policy", admins, "", 403, 0, ""}, // for the operator's own tenant
	{"POST /api/policy/explain", admins, "", 200, 0, `{"tool":"look"}`},
	{"GET /api/pods", admins, "", 200, 0, ""},
	{"GET /api/doctor", admins, "", 403, 0, ""},
	{"GET /api/backup", admins, "", 403, 0, ""},
	{"GET /api/tenants", operators, "", 200, 0, ""},
	{"GET /api/tenants/{tenant}", operators, "", 200, 0, ""},
	{"POST /api/tenants/{tenant}/keys", operators, "", 403, 0, `{}`}, // of a tenant in use
	{"PUT /api/tenants/{tenant}/budget", operators, "", 200, 0, `{"tenant":{"calls":1000000}}`},
	{"POST /pair", everybody, "", 201, 0, `{"device_id":"asks"}`},
	{"POST /pair/status", everybody, "", 404, 0, `{"secret":"unknown"}`},
	{"POST /pair/challenge", "device", "", 400, 0, ""}, // a device without a key
	{"GET /api/pairings", "approver", "", 200, 0, ""},
	{"POST /api/pairings", "approver", "", 404, 0, `{"code":"ABCD-EFGH"}`},
	{"POST /api/pairings/{id}", "approver", "paired", 404, 404, `{"decision":"reject"}`}, // none waits
	{"POST /api/pairings/setup", "approver", "", 201, 0, `{}`},
	{"GET /api/devices", "approver", "", 200, 0, ""},
	{"POST /api/devices/import", admins, "", 400, 0, `{"nodes":[]}`}, // of no node
	{"POST /pair/rotate", "device", "", 400, 0, ""},                  // with a key that is not a paired device's
	{"POST /api/devices/{id}/rotate", admins, "paired", 200, 404, `{"overlap":60}`},
	{"GET /api/devices/{id}", "approver", "paired", 200, 404, ""},
	{"PUT /api/devices/{id}", "approver", "paired", 200, 404, `{"name":"mine"}`},
	{"DELETE /api/devices/{id}", "approver", "paired", 204, 404, ""},
	{"DELETE /api/devices/{id}/wake", "caller", "paired", 404, 404, ""}, // nothing is registered yet
	{"PUT /api/devices/{id}/wake", "caller", "paired", 200, 404, `{"kind":"webhook","url":"https://example.com/"}`},
	{"GET /api/devices/{id}/wake", "caller", "paired", 200, 404, ""},
	{"POST /api/devices/{id}/tools", "approver", "paired", 200, 404, `{"reject":["look"]}`},
	{"GET /api/approvals", "approver", "", 200, 0, ""},
	{"GET /api/approvals/{id}", "approver", "approval", 200, 404, ""},
	{"POST /api/approvals/{id}", "approver", "approval", 200, 404, `{"decision":"deny"}`},
	{"GET /api/grants", "approver", "", 200, 0, ""},
	{"DELETE /api/grants/{id}", "approver", "grant", 200, 404, ""},
	{"POST /api/uploads", "caller", "", 201, 0, `{"size":1,"sha256":"` + someSum + `"}`},
	{"PUT /uploads/{slot}", everybody, "", 404, 0, "x"}, // of an unknown slot: the secret is the credential
	{"GET /blobs/{id}", everybody, "", 404, 0, ""},
	{"GET /metrics", admins, "", 200, 0, ""},
	{"GET /ws/chat", "device", "", 400, 0, ""}, // no handshake; the sockets are below
	{"GET /ws/mcp", "device", "", 400, 0, ""},
	{"GET /ws/node", everybody, "", 400, 0, ""}, // nodes say who they are in their first frame
}

const someSum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

const mcpList = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`

// frames has a line for each frame that a device sends: the roles that may send it over their socket.
var frames = []struct{ frame, who string }{
	{`{"type":"connect"}`, "device"},
	{`{"type":"register_tools","tools":[]}`, "device"},
	{`{"type":"unregister_tools","names":[]}`, "device"},
	{`{"type":"get_registered_tools"}`, "device"},
	{`{"type":"tool_call_accepted","id":"c1"}`, "device"},
	{`{"type":"tool_progress","id":"c1"}`, "device"},
	{`{"type":"tool_result","id":"c1"}`, "device"},
	{`{"type":"register_wake"}`, "device"},
	{`{"type":"upload_request","id":"c1","mime_type":"a/b","size":1}`, "device"},
	{`{"type":"tool_error","id":"c1"}`, "device"},
	{`{"type":"approval_response","id":"aaaaaaaaaaaaaaaa","decision":"deny"}`, "device"},
	{`{"type":"presence","foreground":true}`, "device"},
	{`{"type":"set_default"}`, "device"},
	{`{"type":"message","content":"hi"}`, "device"},
	{`{"type":"abort"}`, "device"},
	{`{"type":"regenerate"}`, "device"},
}

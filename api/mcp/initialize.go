package mcp

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/farhand/farhand/internal/strictjson"
)

// ttl is how long a client may cache a list, in milliseconds. It is short because devices connect and disconnect, and a
// client that does not listen gets no notification.
const ttl = "5000"

// Capabilities of the server. Clients of the revisions before 2026-07-28 get no notifications of changes.
const (
	capabilitiesModern = `{"tools":{"listChanged":true},"resources":{"listChanged":true},` +
		`"extensions":{"` + extensionTasks + `":{}}}`
	capabilitiesLegacy = `{"tools":{},"resources":{}}`
)

func instructions(scope Scope) string {
	return "Farhand gives you tools of devices that are connected right now. " + scope.text() +
		" A name that ends in two underscores and a session's id runs on that session's device." +
		" Devices come and go: list the tools again when one is missing." +
		" Read the resource farhand://sessions to see who is connected."
}

// initialize begins a connection in the revisions before 2026-07-28. The pod keeps no state of it. The session name
// only distinguishes its request ids from those of another client of the same identity, because clients usually count
// from 0.
func (s *Server) initialize(_ context.Context, r *request) (result, error) {
	asked, err := r.params.mustText("protocolVersion")
	if err != nil {
		return result{}, err
	}
	if asked >= revision2026 || !slices.Contains(revisions(), asked) {
		asked = revision2025
	}
	r.Out.NameSession(rand.Text())
	b := strictjson.AppendString([]byte(`"protocolVersion":`), asked)
	b = append(append(b, `,"capabilities":`+capabilitiesLegacy+`,"serverInfo":`...), s.info...)
	return result{members: strictjson.AppendString(append(b, `,"instructions":`...), instructions(r.Scope))}, nil
}

func (s *Server) ping(context.Context, *request) (result, error) { return result{}, nil }

// discover returns the server's revisions and capabilities, in place of initialize.
func (s *Server) discover(_ context.Context, r *request) (result, error) {
	versions, _ := json.Marshal(revisions()) // cannot fail: strings
	b := append([]byte(`"supportedVersions":`), versions...)
	b = strictjson.AppendString(append(b, `,"capabilities":`+capabilitiesModern+`,"instructions":`...),
		instructions(r.Scope))
	return result{members: b, private: true}, nil
}

// Revisions of the protocol. Their names sort by age.
const (
	revision2026 = "2026-07-28" // the first with independent requests
	revision2025 = "2025-11-25" // the last with initialize
)

// revisions returns the supported revisions, the newest first.
func revisions() []string {
	return []string{revision2026, revision2025, "2025-06-18", "2025-03-26", "2024-11-05"}
}

// Headers, in their canonical form.
const (
	headerRevision = "Mcp-Protocol-Version"
	headerMethod   = "Mcp-Method"
	headerName     = "Mcp-Name"
)

// Names in _meta.
const (
	metaRevision     = "io.modelcontextprotocol/protocolVersion"
	metaClient       = "io.modelcontextprotocol/clientInfo"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaServer       = "io.modelcontextprotocol/serverInfo"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"
)

// checkRevision determines the revision of a message, and compares its headers with its body, because intermediaries
// decide by the headers.
func (r *request) checkRevision(h http.Header) error {
	revision := h.Get(headerRevision)
	inBody, _ := r.meta.text(metaRevision)
	known := slices.Contains(revisions(), revision)
	switch {
	case revision == "" && inBody == "": // as in 2025-03-26
		return nil
	case revision == "":
		return mismatch("The header %s is missing: _meta names %.40q.", headerRevision, inBody)
	case revision < revision2026 && !known:
		return unsupported(revision)
	case revision < revision2026 && (inBody == "" || inBody == revision), !r.isRequest():
		return nil
	}
	r.modern = true
	switch {
	case inBody == "":
		return invalidParams("_meta must have %q.", metaRevision)
	case inBody != revision:
		return mismatch("The header %s is %.40q, but _meta has %.40q.", headerRevision, revision, inBody)
	}
	if err := r.checkHeaders(h); err != nil {
		return err
	}
	if !known {
		return unsupported(revision)
	}
	if info := r.meta.get(metaClient); !info.IsZero() && !isImplementation(info) {
		return invalidParams("_meta[%q] must have a name and a version.", metaClient)
	}
	if r.capabilities = r.meta.get(metaCapabilities); !r.capabilities.IsObject() {
		return invalidParams("_meta must have %q, a JSON object.", metaCapabilities)
	}
	return nil
}

// checkHeaders rejects a request whose headers differ from the parts of the body that they repeat.
func (r *request) checkHeaders(h http.Header) error {
	if got := h.Get(headerMethod); got != r.method {
		return mismatch("The header %s is %.80q, but the body has %.80q.", headerMethod, got, r.method)
	}
	field := ""
	switch r.method {
	case methodCallTool, "prompts/get":
		field = "name"
	case methodReadResource:
		field = "uri"
	case methodGetTask, methodUpdateTask, methodCancelTask:
		field = "taskId"
	default:
		return nil
	}
	want, err := r.params.mustText(field)
	if err != nil {
		return err
	}
	if got, ok := headerText(h.Get(headerName)); !ok || got != want {
		return mismatch("The header %s is %.80q, but the body has %.80q.", headerName, got, want)
	}
	return nil
}

// headerText decodes a header. Values that are not printable ASCII are sent as =?base64?…?=.
func headerText(s string) (string, bool) {
	encoded, ok := strings.CutPrefix(s, "=?base64?")
	if !ok {
		return s, s != ""
	}
	if encoded, ok = strings.CutSuffix(encoded, "?="); !ok {
		return s, true
	}
	text, err := base64.StdEncoding.DecodeString(encoded)
	return string(text), err == nil
}

func isImplementation(v strictjson.Value) bool {
	info, err := membersOf(v)
	_, name := fields(info).text("name")
	_, version := fields(info).text("version")
	return err == nil && name && version
}

func mismatch(format string, args ...any) error {
	e := invalidParams(format, args...).(*rpcError)
	e.code = codeHeaderMismatch
	return e
}

// unsupported returns the error for an unknown revision, with the supported ones.
func unsupported(revision string) error {
	return &rpcError{
		code: codeUnsupportedVersion, message: "This revision of the protocol is not supported here.",
		data: struct {
			Supported []string `json:"supported"`
			Requested string   `json:"requested"`
		}{revisions(), revision},
	}
}

package farhand_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent/access/jwt"
	"github.com/farhand/farhand/agent/wake"
	"github.com/farhand/farhand/ws"
)

// The three whose things a request can be about, as seen by anna of the tenant acme.
var whose = []string{"own", "another user's", "another tenant's"}

// owners are the user and the tenant that each of them is.
var owners = map[string][2]string{"own": {"anna", "acme"}, "another user's": {"ben", "acme"},
	"another tenant's": {"anna", "globex"}}

// actors are all who send requests. Nobody has a credential, approvers have JSON Web Tokens, and the others keys. The
// last four have what was good before. The operator has a key of the default tenant.
var actors = []string{
	"nobody", "device", "caller", "approver", "admin", "operator", "expired", "revoked", "expired token",
	"revoked token",
}

// hasEnded reports whether an actor has a credential that is no good any more.
func hasEnded(actor string) bool { return slices.Contains(actors[6:], actor) }

// world is a gateway with things of each owner.
type world struct {
	*testing.T
	url    string
	things map[string]map[string]string // by owner and kind: an id
	tokens map[string]string            // by actor, user and tenant
	seeded int
	asked  int
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, things: make(map[string]map[string]string), tokens: make(map[string]string)}
	w.url = start(t, farhand.Config{
		Token: adminToken, TrustedProxies: []string{"127.0.0.1"}, JWT: jwt.Settings{
			Issuer: "issuer", Audience: "farhand", Secret: matrixSecret,
		},
		Wake: wake.Settings{WebhookSecret: wakeSecret},
	}, farhand.WithModel(&askedModel{}))
	for _, o := range whose {
		w.seed(o)
	}
	return w
}

// seed makes new things of an owner: a device with a tool, and a call.
func (w *world) seed(owner string) {
	w.Helper()
	w.seeded++
	user, tenant := owners[owner][0], owners[owner][1]
	session := fmt.Sprintf("%s-%s-%d", user, tenant, w.seeded)
	w.device(session, w.tokenOf("device", user, tenant))
	status, body := send(w.T, w.url+"/api/sessions/"+session+"/tools/look/call", `{"mode":"async"}`,
		w.tokenOf("caller", user, tenant))
	var call struct {
		CallID string `json:"call_id"`
	}
	if err := json.Unmarshal([]byte(body), &call); err != nil || status != http.StatusAccepted {
		w.Fatalf("%s: %d %s", owner, status, body)
	}
	if status, body := send(w.T, w.url+"/api/calls/"+call.CallID+"?wait_ms=20000", "",
		w.tokenOf("caller", user, tenant)); !strings.Contains(body, `"completed"`) &&
		!strings.Contains(body, `"succeeded"`) {
		w.Fatalf("%s: %d %s", owner, status, body)
	}
	w.things[owner] = map[string]string{
		"session": session, "call": call.CallID,
		"approval": w.waiting(session, user, tenant), "grant": w.granted(session, user, tenant),
		"paired": w.pair(session, w.tokenOf("approver", user, tenant)),
		"key":    w.create("/api/keys", `{"roles":["caller"],"user_id":"`+user+`"}`, w.tokenOf("admin", "", tenant)),
	}
}

// pair pairs a device, which an approver approves by its code, and returns its id.
func (w *world) pair(device, approver string) string {
	w.Helper()
	post := func(path, body, token string, into any) {
		w.Helper()
		status, text := w.ask(line{route: "POST " + path, body: body}, http.MethodPost, "", token)
		if err := json.Unmarshal([]byte(text), into); err != nil || status/100 != 2 {
			w.Fatalf("%s: %d %s", path, status, text)
		}
	}
	var asked struct{ Code, Secret string }
	post("/pair", `{"device_id":"`+device+`"}`, "", &asked)
	var answer any
	post("/api/pairings", `{"code":"`+asked.Code+`","decision":"approve"}`, approver, &answer)
	post("/pair/status", `{"secret":"`+asked.Secret+`"}`, "", &answer)
	return device
}

// waiting begins a call that waits for a person, and returns the id of the approval.
func (w *world) waiting(session, user, tenant string) string {
	w.Helper()
	status, body := send(w.T, w.url+"/api/sessions/"+session+"/tools/snap/call", `{"mode":"async"}`,
		w.tokenOf("caller", user, tenant))
	var call struct {
		Approval string `json:"approval_id"`
	}
	if err := json.Unmarshal([]byte(body), &call); err != nil || status != http.StatusAccepted || call.Approval == "" {
		w.Fatalf("%s: %d %s", session, status, body)
	}
	return call.Approval
}

// granted returns the id of a grant.
func (w *world) granted(session, user, tenant string) string {
	w.Helper()
	status, body := send(w.T, w.url+"/api/approvals/"+w.waiting(session, user, tenant), `{"decision":"allow-always"}`,
		w.tokenOf("approver", user, tenant))
	var decided struct{ Grant struct{ ID string } }
	if err := json.Unmarshal([]byte(body), &decided); err != nil || status != http.StatusOK || decided.Grant.ID == "" {
		w.Fatalf("%s: %d %s", session, status, body)
	}
	return decided.Grant.ID
}

// create posts a body and returns the id of what it makes.
func (w *world) create(path, body, token string) string {
	w.Helper()
	status, text := send(w.T, w.url+path, body, token)
	var made struct{ ID string }
	if err := json.Unmarshal([]byte(text), &made); err != nil || status != http.StatusCreated || made.ID == "" {
		w.Fatalf("%s: %d %s", path, status, text)
	}
	return made.ID
}

// device connects a device that offers the tool look and answers its calls.
func (w *world) device(session, token string) {
	w.Helper()
	answering(w.T, w.url, session, token, `[{"name":"look","parameters":{"type":"object"}},`+
		`{"name":"snap","parameters":{"type":"object"},"security_level":"user_confirm"}]`)
}

// answering connects a device that registers tools and answers each call of them with "seen".
func answering(t *testing.T, url, session, token, tools string) {
	t.Helper()
	conn := connect(t, url, session, token)
	write := func(frame string) {
		_ = conn.WriteMessage(websocket.TextMessage, []byte(frame)) // it may have been sent home meanwhile
	}
	write(`{"type":"register_tools","tools":` + tools + `}`)
	if _, text, err := conn.ReadMessage(); err != nil || !strings.Contains(string(text), `"tools_registered"`) ||
		strings.Contains(string(text), `"registered":0`) {
		t.Fatalf("%s: %s, %v", session, text, err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		conn.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			_, text, err := conn.ReadMessage()
			if err != nil {
				return
			}
			var f struct{ Type, ID string }
			if json.Unmarshal(text, &f) == nil && f.Type == "tool_call_request" {
				write(`{"type":"tool_result","id":"` + f.ID + `","output":"seen"}`)
			}
		}
	}()
}

// ask sends the request of a line about a thing. It does not wait for the end of a stream.
func (w *world) ask(l line, method, thing, token string) (int, string) {
	w.Helper()
	_, path, _ := strings.Cut(l.route, " ")
	path = strings.NewReplacer("{id}", cmp.Or(thing, "someone"), "{name}", "look", "{model}", "asked",
		"{tenant}", "acme").Replace(path)
	ctx, cancel := context.WithTimeout(w.Context(), limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, w.url+path,
		strings.NewReader(strings.ReplaceAll(l.body, "{id}", thing)))
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	w.asked++ // from an address of its own, because who guesses too often from one is told to wait
	r.Header.Set("X-Forwarded-For", fmt.Sprintf("192.0.%d.%d", w.asked>>8, w.asked&0xff))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if strings.HasPrefix(path, "/v1/") && l.thing != "" {
		r.Header.Set("X-Farhand-Session", thing)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	defer resp.Body.Close()
	if path == "/api/events" && resp.StatusCode == http.StatusOK {
		return resp.StatusCode, ""
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// want returns the status that a line promises.
func (l line) want(actor, owner string) int {
	switch {
	case l.who == everybody:
		return l.own
	case actor == "nobody" || hasEnded(actor):
		return http.StatusUnauthorized
	case (actor != "admin" || l.who == operators) && !slices.Contains(strings.Fields(l.who), actor):
		return http.StatusForbidden
	case l.who == operators:
		return l.own
	case owner == "own" || l.thing == "" || actor == "admin" && owner == "another user's":
		return l.own
	default:
		return l.foreign
	}
}

// TestMatrixOfRoutes asks each route as everybody, about everybody's things.
func TestMatrixOfRoutes(t *testing.T) {
	w := newWorld(t)
	w.checkRoutes()
	for _, l := range matrix {
		method, _, _ := strings.Cut(l.route, " ")
		methods := []string{method}
		if method == http.MethodGet && !strings.HasPrefix(l.route, "GET /ws/") {
			methods = append(methods, http.MethodHead)
		}
		for _, actor := range actors {
			for _, owner := range whose {
				for _, method := range methods {
					w.check(l, method, actor, owner)
				}
			}
		}
	}
}

// check sends one request of the matrix.
func (w *world) check(l line, method, actor, owner string) {
	want := l.want(actor, owner)
	if method == http.MethodDelete && want/100 == 2 {
		defer w.seed(owner)
	}
	token := w.tokenOf(actor, "anna", "acme")
	status, body := w.ask(l, method, w.things[owner][l.thing], token)
	if status != want {
		w.Errorf("%s %s, %s, %s: %d, want %d: %s", method, l.route, actor, owner, status, want, body)
	}
	if status == http.StatusForbidden && method != http.MethodHead && !strings.Contains(body, "role") {
		w.Errorf("%s, %s: the answer does not say which role is needed: %s", l.route, actor, body)
	}
	// A list. The audit log is none: it names what somebody of the tenant has asked about, also in vain.
	if l.thing == "" && l.who != everybody && l.route != "GET /api/audit" {
		for _, other := range whose[1:] {
			for kind, id := range w.things[other] {
				seen := strings.Contains(body, id)
				if seen && (actor != "admin" || other != "another user's") {
					w.Errorf("%s, %s: shows %s %s: %s", l.route, actor, other, kind, body)
				}
			}
		}
	}
	if want == l.foreign && l.foreign != 0 && method != http.MethodHead {
		_, unknown := w.ask(l, method, unknownThing[l.thing], token)
		if plain(body) != plain(unknown) {
			w.Errorf("%s, %s, %s is answered\n%s\nand what does not exist\n%s", l.route, actor, owner, body, unknown)
		}
	}
}

// unknownThing are ids of things that do not exist.
var unknownThing = map[string]string{"session": "ghost", "call": "00000000-0000-4000-8000-000000000000",
	"key": "0000000000000000", "paired": "ghost", "approval": "aaaaaaaaaaaaaaaa", "grant": "aaaaaaaaaaaaaaaa"}

var uuids = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// plain returns an answer without the ids that are different each time.
func plain(body string) string { return uuids.ReplaceAllString(body, "ID") }

// checkRoutes compares the lines of the matrix with the routes of the gateway, as its document lists them; that each
// route is in the document is tested there.
func (w *world) checkRoutes() {
	_, text := send(w.T, w.url+"/openapi.json", "", "")
	var doc struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		w.Fatal(err)
	}
	served := make(map[string]bool)
	for path, item := range doc.Paths {
		for method := range item {
			if method != "parameters" {
				served[strings.ToUpper(method)+" "+path] = true
			}
		}
	}
	for _, l := range matrix {
		if !served[l.route] {
			w.Errorf("%s has a line and is not served", l.route)
		}
		delete(served, l.route)
	}
	for _, route := range slices.Sorted(maps.Keys(served)) {
		w.Errorf("%s is served and has no line in the matrix", route)
	}
}

// An admin is one of their own tenant, whatever they write.
func TestAdminsOfOneTenant(t *testing.T) {
	w := newWorld(t)
	admin := w.tokenOf("admin", "", "acme")
	status, text := send(t, w.url+"/api/keys", `{"roles":["admin"],"tenant":"globex"}`, admin)
	if status/100 == 2 {
		t.Errorf("an admin of one tenant made a key of another: %d %s", status, text)
	}
	send(t, w.url+"/api/revocations", `{"credential":"key:`+w.things["another tenant's"]["key"]+`"}`, admin)
	if _, keys := send(t, w.url+"/api/keys", "", w.tokenOf("admin", "", "globex")); !strings.Contains(keys,
		w.things["another tenant's"]["key"]) {
		t.Errorf("an admin of one tenant revoked a key of another: %s", keys)
	}
}

// TestMatrixOfSockets opens sockets as everybody, on everybody's sessions, and sends each frame over them.
func TestMatrixOfSockets(t *testing.T) {
	w := newWorld(t)
	lines := make(map[string]bool)
	for _, f := range frames {
		var frame struct{ Type string }
		if err := json.Unmarshal([]byte(f.frame), &frame); err != nil {
			t.Fatal(err)
		}
		lines[frame.Type] = true
	}
	for _, typ := range ws.ReceivedTypes() {
		// Those of MCP and of nodes are understood at their paths only, where each connection has the role device.
		counted := slices.Contains([]string{"ping", "pong", "other", "mcp", "hello", "req", "res", "event"}, typ)
		if lines[typ] == counted {
			t.Errorf("%s: has a line in the matrix: %v", typ, lines[typ])
		}
	}
	upgrade := line{who: "device", thing: "session", own: http.StatusSwitchingProtocols, foreign: http.StatusNotFound}
	for _, actor := range actors {
		for _, owner := range whose {
			want := upgrade.want(actor, owner)
			if owner == "another tenant's" && want == http.StatusNotFound || actor == "admin" {
				want = http.StatusSwitchingProtocols // ids are each tenant's own
			}
			w.socket(actor, owner, want)
		}
	}
}

// socket opens a socket on a session, and sends each frame if it is opened.
func (w *world) socket(actor, owner string, want int) {
	w.seed(owner)
	user, tenant := owners["own"][0], owners["own"][1]
	conn, resp, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(w.url, "http")+"/ws/chat?session_id="+
		w.things[owner]["session"], http.Header{"Authorization": {"Bearer " + w.tokenOf(actor, user, tenant)}})
	if resp == nil || resp.StatusCode != want {
		w.Fatalf("%s, %s session: %+v, %v, want %d", actor, owner, resp, err, want)
	}
	defer resp.Body.Close()
	if err != nil {
		return
	}
	defer conn.Close()
	for _, f := range frames {
		allowed := actor == "admin" || slices.Contains(strings.Fields(f.who), actor)
		if err := conn.WriteMessage(websocket.TextMessage, []byte(f.frame)); err != nil {
			w.Fatal(err)
		}
		// The answer to what is not known says that the frame before has been handled.
		_ = conn.WriteMessage(websocket.TextMessage, []byte(`{"type":"is that all?"}`))
		refused := false
		for {
			_ = conn.SetReadDeadline(time.Now().Add(limit))
			_, text, err := conn.ReadMessage()
			if err != nil {
				w.Fatalf("%s, %s: %v", actor, f.frame, err)
			}
			if strings.Contains(string(text), "UNKNOWN_MESSAGE_TYPE") {
				break
			}
			refused = refused || strings.Contains(string(text), `"FORBIDDEN"`)
		}
		if refused == allowed {
			w.Errorf("%s sends %s: refused: %v", actor, f.frame, refused)
		}
	}
}

package farhand_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// limit bounds every wait of these tests for something that must come true.
const limit = testkit.Limit

// start makes a gateway that is served by a server of the test's own, and returns its URL.
func start(t testing.TB, cfg farhand.Config, opts ...farhand.Option) string {
	t.Helper()
	cfg.RedisTimeout = limit / 2 // no test here stops Redis, but the machine may stall
	g, err := farhand.New(t.Context(), cfg, append([]farhand.Option{quiet, farhand.WithProgram(self)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		server.Close()
	})
	return server.URL
}

// send posts a body, or gets what is there if it is empty.
func send(t testing.TB, url, body, token string) (int, string) {
	t.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// connect opens a device's socket and waits until it has its session.
func connect(t testing.TB, url, session, token string) *websocket.Conn {
	t.Helper()
	conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(url, "http")+"/ws/chat?session_id="+session,
		http.Header{"Authorization": {"Bearer " + token}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, _, err := conn.ReadMessage(); err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestToolFunc(t *testing.T) {
	type in struct {
		N    int    `json:"n"`
		Want string `json:"want,omitempty"`
	}
	url := start(t, farhand.Config{}, farhand.WithToolFunc("work", "Works.",
		func(_ context.Context, a in) (any, error) {
			switch a.Want {
			case "error":
				return nil, errors.New("it broke")
			case "code":
				return nil, registry.Errorf(registry.CodeBusy, "Later.")
			case "panic":
				panic("out of luck")
			case "text":
				return "as <it> is", nil
			case "nothing":
				return nil, nil
			}
			return map[string]int{"n": a.N}, nil
		}))
	for args, want := range map[string]string{
		`{"n":1}`:                  `"output":"{\"n\":1}","structured":{"n":1}`,
		`{"n":1,"want":"text"}`:    `"success":true,"output":"as <it> is"`,
		`{"n":1,"want":"nothing"}`: `"success":true,"output":""`,
		`{"n":1,"want":"error"}`:   `"success":false,"output":"it broke","error":"it broke"`,
		`{"n":1,"want":"code"}`:    `"code":"busy"`,
		`{"n":1,"want":"panic"}`:   `"code":"internal"`,
		`{}`:                       `"code":"invalid_arguments"`,
		`{"n":"one"}`:              `"pointer":"/n"`,
		`{"n":1,"other":1}`:        `"code":"invalid_arguments"`,
	} {
		if _, got := send(t, url+"/api/tools/work/call", `{"args":`+args+`}`, ""); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
	if _, err := farhand.NewTool("two words", "x",
		func(context.Context, in) (any, error) { return nil, nil }); err == nil {
		t.Error("a malformed name was taken")
	}
	if _, err := farhand.New(t.Context(), farhand.Config{}, farhand.WithToolFunc("f", "x",
		func(context.Context, struct{ F func() }) (any, error) { return nil, nil }), quiet); err == nil {
		t.Error("arguments without a schema were taken")
	}
}

// byUser takes the token for the name of a user of one tenant.
var byUser = auth.AuthenticatorFunc(func(ctx context.Context, r *http.Request, token string) (auth.Identity, error) {
	if ctx == nil || r.URL == nil || token == "" {
		return auth.Identity{}, registry.Errorf(registry.CodeUnauthenticated, "A valid bearer token is required.")
	}
	if token == "broken" {
		return auth.Identity{}, errors.New("the directory at 10.0.0.1 is away")
	}
	return auth.Identity{User: token}, nil
})

// An authenticator of the program's own is asked for callers and devices, and a gateway with one may be reached by
// others.
func TestAuthenticator(t *testing.T) {
	url := start(t, farhand.Config{Addr: "0.0.0.0:0", AgentConfig: farhand.AgentConfig{OtherSessions: true}},
		farhand.WithAuthenticator(byUser))
	if status, text := send(t, url+"/api/sessions", "", "broken"); status != http.StatusInternalServerError ||
		strings.Contains(text, "10.0.0.1") {
		t.Errorf("%d %s", status, text)
	}
	ws := "ws" + strings.TrimPrefix(url, "http") + "/ws/chat?session_id=phone"
	if _, resp, err := websocket.DefaultDialer.Dial(ws, nil); err == nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a device without a token: %v", err)
	}
	connect(t, url, "phone", "ada")
	if _, text := send(t, url+"/api/sessions", "", "ada"); !strings.Contains(text, `"user_id":"ada"`) {
		t.Errorf("the session is nobody's: %s", text)
	}
	// Without one, others must not reach a gateway that asks nobody for a credential.
	if _, err := farhand.New(t.Context(), farhand.Config{Addr: "0.0.0.0:0"}, quiet); err == nil {
		t.Error("a gateway without a token was opened to everybody")
	}
}

// guardedTool says who may call it, and what its schema cannot.
type guardedTool struct{ agent.Tool }

func (guardedTool) Authorize(_ context.Context, caller auth.Identity, _ json.RawMessage) error {
	switch caller.User {
	case "eve":
		return errors.New("eve may not")
	case "busy":
		return registry.Errorf(registry.CodeBusy, "Later.")
	}
	return nil
}

func (guardedTool) Validate(_ context.Context, args json.RawMessage) error {
	if strings.Contains(string(args), "odd") {
		return errors.New("an odd argument")
	}
	return nil
}

func TestToolsAuthorizeAndValidate(t *testing.T) {
	var ran []string
	type in struct {
		Say string `json:"say"`
	}
	echo, err := farhand.NewTool("echo", "Says it again.", func(_ context.Context, a in) (any, error) {
		ran = append(ran, a.Say)
		return a.Say, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	url := start(t, farhand.Config{}, farhand.WithTool(guardedTool{echo}), farhand.WithAuthenticator(byUser))
	for _, tt := range []struct {
		user, say string
		status    int
		want      string
	}{
		{"ada", "fine", 200, `"output":"fine"`},
		{"eve", "fine", 403, "eve may not"},
		{"eve", "odd", 422, "an odd argument"}, // what is wrong with the arguments is told first
		{"busy", "fine", 429, "Later."},
		{"ada", "odd", 422, "an odd argument"},
	} {
		status, text := send(t, url+"/api/tools/echo/call", `{"args":{"say":"`+tt.say+`"}}`, tt.user)
		if status != tt.status || !strings.Contains(text, tt.want) || status != 200 &&
			!strings.Contains(text, `"dispatched":"no"`) {
			t.Errorf("%s %s: %d %s", tt.user, tt.say, status, text)
		}
	}
	if !slices.Equal(ran, []string{"fine"}) {
		t.Errorf("it ran with %q", ran)
	}
}

// askedModel remembers the system prompts it was asked with.
type askedModel struct {
	mu      sync.Mutex
	systems []string
}

func (*askedModel) Name() string { return "asked" }

func (m *askedModel) Generate(_ context.Context, r provider.Request, emit func(provider.Delta)) (provider.Answer,
	error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.systems = append(m.systems, r.System)
	emit(provider.Delta{Text: "yes"})
	return provider.Answer{Message: provider.Message{Role: provider.RoleAssistant, Content: "yes"},
		Stop: provider.StopEnd}, nil
}

// The system prompt may be made for each conversation; one that cannot be made ends the turn, and nobody is told why.
func TestSystemPromptPerConversation(t *testing.T) {
	model := &askedModel{}
	url := start(t, farhand.Config{}, farhand.WithModel(model), farhand.WithAuthenticator(byUser),
		farhand.WithSystemPrompt(func(_ context.Context, sc agent.SessionContext) (string, error) {
			if sc.Caller.User == "eve" {
				return "", errors.New("no prompt at 10.0.0.1")
			}
			return "You talk to " + sc.Caller.User + " on " + sc.Key.Session + ".", nil
		}))
	for _, session := range []string{"phone", "tablet"} {
		connect(t, url, session, "ada")
		if status, text := send(t, url+"/api/sessions/"+session+"/messages", `{"content":"hi"}`,
			"ada"); status != http.StatusOK {
			t.Errorf("%d %s", status, text)
		}
	}
	model.mu.Lock()
	defer model.mu.Unlock()
	if len(model.systems) != 2 || !strings.HasPrefix(model.systems[0], "You talk to ada on phone.") ||
		!strings.HasPrefix(model.systems[1], "You talk to ada on tablet.") {
		t.Errorf("%q", model.systems)
	}
	connect(t, url, "eves", "eve")
	if status, text := send(t, url+"/api/sessions/eves/messages", `{"content":"hi"}`, "eve"); status < 500 ||
		strings.Contains(text, "10.0.0.1") {
		t.Errorf("%d %s", status, text)
	}
}

// Zero fields mean their defaults, so a program names only what it wants otherwise.
func TestZeroConfigIsTheDefault(t *testing.T) {
	loaded, err := farhand.LoadConfig(nil)
	if def := farhand.DefaultConfig(); err != nil || def.MaxFrame != loaded.MaxFrame ||
		def.CallTimeout != 30*time.Second || !def.AllowDebug {
		t.Errorf("%+v, %v", def, err)
	}
	url := start(t, farhand.Config{Token: "0123456789abcdef0"})
	if status, _ := send(t, url+"/api/tools", "", "0123456789abcdef0"); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
	if status, _ := send(t, url+"/api/tools", "", "wrong"); status != http.StatusUnauthorized {
		t.Errorf("status %d", status)
	}
	_, err = farhand.New(t.Context(), farhand.Config{
		CallTimeout: time.Hour, MaxFrame: 1, ApprovalTime: 2 * time.Hour, DeferredTime: 25 * time.Hour,
	}, quiet)
	for _, name := range []string{"CALL_TIMEOUT", "MAX_FRAME", "APPROVAL_TIMEOUT", "ASYNC_APPROVAL_TIMEOUT"} {
		if err == nil || !strings.Contains(err.Error(), "FARHAND_"+name+": ") {
			t.Errorf("not everything that is wrong is told: no %s in %v", name, err)
		}
	}
}

// Two gateways share a store of the program's own; closing one leaves it to the other.
func TestStoreOfTheProgram(t *testing.T) {
	shared := memory.New(memory.Options{})
	first := start(t, farhand.Config{}, farhand.WithStore(shared, shared.NewBus()))
	second, err := farhand.New(t.Context(), farhand.Config{}, farhand.WithStore(shared, shared.NewBus()), quiet)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if status, text := send(t, first+"/readyz", "", ""); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	if _, err := farhand.New(t.Context(), farhand.Config{}, farhand.WithStore(shared, nil), quiet); err == nil {
		t.Error("a store without a bus was taken")
	}
}

// A gateway behind a server of the program's own sends its devices away as any other does.
func TestCloseSendsDevicesAway(t *testing.T) {
	g, err := farhand.New(t.Context(), farhand.Config{}, farhand.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler())
	defer server.Close()
	conn := connect(t, server.URL, "phone", "")
	closed := make(chan error, 1)
	go func() { closed <- g.Close(context.Background()) }()
	_ = conn.SetReadDeadline(time.Now().Add(limit))
	if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseServiceRestart) {
		t.Errorf("the device read %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

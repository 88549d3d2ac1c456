package farhand_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/internal/testkit"
)

// byPerson takes the token for a user, who may do everything but administer; "root" is an admin without a user.
var byPerson = auth.AuthenticatorFunc(func(_ context.Context, _ *http.Request, token string) (auth.Identity, error) {
	who := auth.Identity{Tenant: "acme", User: token, Credential: "test:" + token}
	if err := who.SetRoles(auth.NameDevice, auth.NameCaller, auth.NameApprover); err != nil {
		return who, err
	}
	if token == "root" {
		who.User, who.Admin = "", true
	}
	return who, nil
})

// onePod has devices of ada and eve, and the rules of a policy.
func onePod(t *testing.T, rules string, change func(*farhand.Config), opts ...farhand.Option) *groupPods {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	writePolicy(t, path, rules)
	cfg := farhand.DefaultConfig()
	cfg.PolicyFile = path
	if change != nil {
		change(&cfg)
	}
	p := &groupPods{TB: t}
	p.urls = []string{start(t, cfg, append(opts, farhand.WithAuthenticator(byPerson))...)}
	tools := `[{"name":"look","parameters":{"type":"object"}},{"name":"hide","parameters":{"type":"object"}}]`
	for _, id := range []string{"ada-1", "ada-2", "eve-1"} {
		user, _, _ := strings.Cut(id, "-")
		p.deviceOf(0, id, `{}`, user, tools, says("ok"))
	}
	return p
}

type groupApproval struct {
	ID      string
	CallID  string `json:"call_id"`
	Tool    string
	UserID  string `json:"user_id"`
	Scope   string
	Devices []struct {
		SessionID string `json:"session_id"`
		DeviceID  string `json:"device_id"`
	}
}

// approvals waits until n approvals are pending, and returns them.
func (p *groupPods) approvals(n int) []groupApproval {
	p.Helper()
	var open struct{ Approvals []groupApproval }
	testkit.Eventually(p.TB, fmt.Sprintf("%d approvals", n), func() bool {
		resp := p.request(p.Context(), 0, http.MethodGet, "/api/approvals", "", "root")
		defer resp.Body.Close()
		return json.NewDecoder(resp.Body).Decode(&open) == nil && len(open.Approvals) == n
	})
	return open.Approvals
}

func (p *groupPods) decide(a groupApproval, decision string) (decided groupApproval) {
	p.Helper()
	resp := p.request(p.Context(), 0, http.MethodPost, "/api/approvals/"+a.ID, `{"decision":"`+decision+`"}`, "root")
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&decided); err != nil || resp.StatusCode != http.StatusOK {
		p.Fatalf("decide: %d %v", resp.StatusCode, err)
	}
	return decided
}

// One approval names the devices of a person, and covers one call of each. Devices of another person are another
// question, because another person may decide it.
func TestGroupCallAsksOnce(t *testing.T) {
	p := onePod(t, `tools: [{id: looks, names: look, approval: {by: anyone}}]`+"\n", nil)
	tables := make(chan groupTable, 1)
	begin := func(token, body string) {
		go func() {
			_, table := p.callAs(0, token, body)
			tables <- table
		}()
	}
	begin("ada", `{"tool":"look"}`)
	a := p.approvals(1)[0]
	if len(a.Devices) != 2 || a.Tool != "look" || a.UserID != "ada" || a.Devices[0].DeviceID != "d-ada-1" {
		t.Errorf("the question: %+v", a)
	}
	if n := p.called("ada-1") + p.called("ada-2"); n != 0 {
		t.Errorf("%d devices were called before the answer", n)
	}
	if d := p.decide(a, "allow-always"); d.Scope != "once" {
		t.Errorf("an answer for a list of devices reaches further: %+v", d)
	}
	table := <-tables
	if table.State != "succeeded" || table.Counts.Succeeded != 2 || a.CallID != table.CallID {
		t.Errorf("allowed: %+v", table)
	}

	begin("root", `{"tool":"look"}`) // of both persons
	for _, a := range p.approvals(2) {
		p.decide(a, map[string]string{"ada": "allow-once", "eve": "deny"}[a.UserID])
	}
	table = <-tables
	if s := table.states(); s["ada-1"] != "succeeded" || s["ada-2"] != "succeeded" || s["eve-1"] != "rejected" {
		t.Errorf("one denied: %+v", table)
	}
	for _, r := range table.Results {
		if r.SessionID == "eve-1" && (r.Problem == nil || r.Problem.Code != "approval_denied" || r.CallID == "") {
			t.Errorf("denied: %+v", r)
		}
	}
	if ada, eve := p.called("ada-1"), p.called("eve-1"); ada != 2 || eve != 0 {
		t.Errorf("ada-1 was called %d times, eve-1 %d times", ada, eve)
	}

	ctx, hangUp := context.WithCancel(t.Context()) // a question is withdrawn with its call
	resp := make(chan error, 1)
	go func() {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, p.urls[0]+"/api/calls",
			strings.NewReader(`{"tool":"look"}`))
		req.Header.Set("Authorization", "Bearer ada")
		_, err := http.DefaultClient.Do(req)
		resp <- err
	}()
	p.approvals(1)
	hangUp()
	<-resp
	p.approvals(0)
}

// A policy that forbids the tool refuses the whole call. Limits count each device. Callers reach their own devices.
func TestGroupCallRules(t *testing.T) {
	p := onePod(t, `tools:
  - {id: hidden, names: hide, forbid: always}
  - {id: few, names: look, calls_per_minute: 2}
  - {id: alone, names: call_devices, for: {users: [eve]}, forbid: always}
`, nil)
	if status, table := p.callAs(0, "ada", `{"tool":"hide"}`); status != http.StatusForbidden ||
		table.Code != "policy_denied" || !strings.Contains(table.Detail, "hidden") {
		t.Errorf("forbidden: %d %+v", status, table)
	}
	if status, table := p.callAs(0, "eve", `{"tool":"look"}`); status != http.StatusForbidden ||
		table.Code != "policy_denied" || !strings.Contains(table.Detail, "alone") {
		t.Errorf("forbidden to eve: %d %+v", status, table)
	}
	_, table := p.callAs(0, "root", `{"tool":"look"}`)
	limited := 0
	for _, r := range table.Results {
		if r.Problem != nil && r.Problem.Code == "rate_limited" && r.State == "rejected" {
			limited++
		}
	}
	if table.Counts.Succeeded != 2 || limited != 1 {
		t.Errorf("limited: %+v", table)
	}
	_, table = p.callAs(0, "ada", `{"tool":"look"}`)
	if s := table.states(); len(s) != 2 || s["eve-1"] != "" {
		t.Errorf("ada reaches: %+v", s)
	}
	_, table = p.callAs(0, "ada", `{"tool":"look","target":{"session_ids":["eve-1"]}}`)
	if r := table.Results[0]; r.Problem == nil || r.Problem.Code != "session_not_found" || p.called("eve-1") > 1 {
		t.Errorf("ada calls eve's device: %+v", table)
	}
}

// An approval names a hundred devices at most: nothing runs on more.
func TestGroupCallAsksAboutAHundred(t *testing.T) {
	p := onePod(t, `tools: [{id: looks, names: look, approval: {by: anyone}}]`+"\n", nil)
	for i := range 101 {
		p.deviceOf(0, fmt.Sprintf("bob-%d", i), `{}`, "bob", `[{"name":"look","parameters":{"type":"object"}}]`,
			says("ok"))
	}
	_, table := p.callAs(0, "bob", `{"tool":"look"}`)
	if table.Counts.Devices != 101 || table.Counts.Failed != 101 || table.Results[0].Problem.Code != "approval_denied" {
		t.Errorf("%+v", table.Counts)
	}
	p.approvals(0)
}

// MCP clients see the tool only if it is enabled and the policy allows it, and get a table.
func TestGroupCallOverMCP(t *testing.T) {
	p := onePod(t, `tools: [{id: alone, names: call_devices, for: {users: [eve]}, forbid: always}]`+"\n",
		func(cfg *farhand.Config) { cfg.Builtins = []string{"call_devices"} })
	ask := func(token, method, params string) string {
		resp := p.request(t.Context(), 0, http.MethodPost, "/mcp", `{"jsonrpc":"2.0","id":1,"method":"`+method+
			`","params":`+params+`}`, token, "Accept", "application/json, text/event-stream")
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for token, sees := range map[string]bool{"ada": true, "eve": false} {
		if list := ask(token, "tools/list", `{}`); strings.Contains(list, `"call_devices"`) != sees {
			t.Errorf("%s sees: %s", token, list)
		}
	}
	said := ask("ada", "tools/call", `{"name":"call_devices","arguments":{"tool":"look","devices":{"all":true}}}`)
	for _, want := range []string{"look on 2 devices: 2 succeeded", `"succeeded":2`, "d-ada-1", `\"ok\"`} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in %s", want, said)
		}
	}
	if p.called("eve-1") != 0 {
		t.Error("a model of ada's called eve's device")
	}
}

// groupModel calls call_devices in each turn, offered or not, and then says whether it was and what it read.
type groupModel struct{}

func (groupModel) Name() string { return "group" }

func (groupModel) Generate(
	_ context.Context, r provider.Request, emit func(provider.Delta),
) (provider.Answer, error) {
	if last := r.Messages[len(r.Messages)-1]; last.Role == provider.RoleTool {
		offered := slices.ContainsFunc(r.Tools, func(t provider.Tool) bool { return t.Name == "call_devices" })
		said := provider.Message{Role: provider.RoleAssistant,
			Content: fmt.Sprint("offered ", offered, ": ", last.Content)}
		emit(provider.Delta{Text: said.Content})
		return provider.Answer{Message: said, Stop: provider.StopEnd}, nil
	}
	return provider.Answer{Message: provider.Message{Role: provider.RoleAssistant, ToolCalls: []provider.ToolCall{{
		ID: "c1", Name: "call_devices", Args: `{"tool":"look","devices":{"all":true}}`,
	}}}, Stop: provider.StopToolCalls}, nil
}

// A model calls many devices with one tool, in a conversation and at /v1, only if the policy allows it.
func TestModelsCallGroups(t *testing.T) {
	p := onePod(t, `tools: [{id: alone, names: call_devices, for: {users: [eve]}, forbid: always}]`+"\n",
		func(cfg *farhand.Config) { cfg.Builtins = []string{"call_devices"} }, farhand.WithModel(groupModel{}))
	for _, c := range []struct {
		user string
		want []string
	}{
		{"ada", []string{"offered true", "look on 2 devices: 2 succeeded", "d-ada-1", "d-ada-2"}},
		{"eve", []string{"offered false"}},
	} {
		for path, body := range map[string]string{
			"/api/sessions/" + c.user + "-1/messages": `{"content":"look"}`,
			"/v1/chat/completions":                    `{"model":"group","messages":[{"role":"user","content":"look"}]}`,
		} {
			resp := p.request(t.Context(), 0, http.MethodPost, path, body, c.user, "X-Farhand-Session", c.user+"-1")
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("%s %s: %d %v %s", c.user, path, resp.StatusCode, err, text)
			}
			for _, want := range c.want {
				if !strings.Contains(string(text), want) {
					t.Errorf("%s %s: no %q in %s", c.user, path, want, text)
				}
			}
		}
	}
	if p.called("ada-1") != 2 || p.called("ada-2") != 2 || p.called("eve-1") != 0 {
		t.Errorf("called %d, %d and %d times", p.called("ada-1"), p.called("ada-2"), p.called("eve-1"))
	}
}

// One identity cannot take the slots of the pod: another still works at once, and so do single calls.
func TestGroupCallSharesThePod(t *testing.T) {
	p := onePod(t, "tools: []\n", func(cfg *farhand.Config) { cfg.MaxGroupCalls = 16 })
	var mu sync.Mutex
	var held []func()
	for i := range 12 {
		p.deviceOf(0, fmt.Sprintf("bob-%d", i), `{}`, "bob", `[{"name":"look","parameters":{"type":"object"}}]`,
			func(d *groupDevice, call string) string {
				mu.Lock()
				defer mu.Unlock()
				held = append(held, func() { d.answer(call, "ok") })
				return ""
			})
	}
	ada := testkit.Alone(t, "devices of group calls", func() error {
		if _, table := p.callAs(0, "ada", `{"tool":"look"}`); table.Counts.Succeeded != 2 {
			return fmt.Errorf("%+v", table)
		}
		return nil
	})
	var greedy sync.WaitGroup
	for range 8 {
		greedy.Go(func() {
			if _, table := p.callAs(0, "bob", `{"tool":"look"}`); table.Counts.Succeeded != 12 {
				t.Errorf("bob: %+v", table.Counts)
			}
		})
	}
	testkit.Eventually(t, "bob has his share of the slots", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(held) >= 4
	})
	ada.Crowded()
	mu.Lock()
	if len(held) != 4 {
		t.Errorf("bob holds %d slots of 16", len(held))
	}
	mu.Unlock()
	ended := make(chan struct{})
	go func() { greedy.Wait(); close(ended) }()
	for {
		mu.Lock()
		for _, answer := range held {
			answer()
		}
		held = nil
		mu.Unlock()
		select {
		case <-ended:
			return
		default:
		}
	}
}

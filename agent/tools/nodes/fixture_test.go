package nodes_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/agent/tools"
	"github.com/farhand/farhand/agent/tools/nodes"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/routing"
	"github.com/farhand/farhand/ws"
	"github.com/farhand/farhand/ws/client"
)

const testTimeout = testkit.Limit

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// who are the identities of a house, by their tokens.
func who(token string) (auth.Identity, bool) {
	all := map[string]auth.Identity{
		"anna":   {User: "anna", Roles: auth.RoleCaller | auth.RoleDevice},
		"bob":    {User: "bob", Roles: auth.RoleCaller | auth.RoleDevice},
		"head":   {User: "anna", Roles: auth.RoleCaller | auth.RoleApprover},
		"shared": {Admin: true},
		"boss":   {User: "boss", Admin: true},
		"guest":  {User: "anna", Roles: auth.RoleCaller, Context: "group"},
	}
	id, ok := all[token]
	id.Tenant, id.Credential = registry.DefaultTenant, "key:"+token
	return id, ok
}

// house is a gateway with real sockets for devices and callers.
type house struct {
	*testing.T
	store   *memory.Store
	http    *httptest.Server
	sets    *agent.ToolSets
	pairing *pairing.Service
	people  *people
	calls   *routing.Calls
}

// people answer approvals.
type people struct {
	allow bool

	mu    sync.Mutex
	asked []registry.Approval
}

func (p *people) Granted(context.Context, registry.Approval) (bool, error) { return false, nil }

func (p *people) Ask(
	_ context.Context, a registry.Approval, _ time.Duration, _ []byte,
) (registry.Approval, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, a)
	return a, nil
}

func (p *people) Await(_ context.Context, a registry.Approval) (registry.Approval, error) {
	a.Verdict.State = registry.ApprovalDenied
	if p.allow {
		a.Verdict.State = registry.ApprovalAllowed
	}
	return a, nil
}

// heard returns what was asked about, and forgets it.
func (p *people) heard() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var tools []string
	for _, a := range p.asked {
		tools = append(tools, a.Tool)
	}
	p.asked = nil
	return tools
}

// book takes the lines of the audit log.
type book struct {
	mu    sync.Mutex
	lines []registry.AuditEntry
}

func (b *book) Note(e registry.AuditEntry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, e)
}

// of returns the lines about an action.
func (b *book) of(action string) (lines []registry.AuditEntry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.lines {
		if e.Action == action {
			lines = append(lines, e)
		}
	}
	return lines
}

// options of a house.
type options struct {
	rules   string // a policy file
	private bool
	audit   auth.Auditor
	mode    pairing.Mode
}

func newHouse(t *testing.T, o options) *house {
	t.Helper()
	h := &house{T: t, store: memory.New(memory.Options{}), people: &people{allow: true}}
	bus := h.store.NewBus()
	pod, err := routing.NewPod(routing.PodConfig{Store: h.store, Bus: bus})
	h.must(err)
	h.must(pod.Start(t.Context()))
	h.calls = pod.Calls
	policy, err := agent.NewPolicy(agent.PolicyRules{})
	h.must(err)
	if o.rules != "" {
		h.must(policy.Replace([]byte(o.rules)))
	}
	h.pairing, err = pairing.New(pairing.Config{Store: h.store, Mode: o.mode})
	h.must(err)
	local, err := agent.NewLocalTools(append(nodes.Registrations(nodes.Config{
		Directory: h.store, Policy: policy, Pairing: h.pairing, Audit: o.audit, AllowPrivateURLs: o.private,
	}), tools.Registrations(tools.Deps{Directory: h.store, Policy: policy})...)...)
	h.must(err)
	invoker := agent.NewInvoker(agent.Config{
		Router: pod.Router, CallLog: pod.Calls, Policy: policy, LocalTools: local, Approvals: h.people, Audit: o.audit,
	})
	h.sets = agent.NewToolSets(agent.ToolSetsConfig{
		Invoker: invoker, Directory: h.store, Policy: policy, LocalTools: local, Approvals: true,
	})
	origins, err := auth.NewOrigins(nil, false)
	h.must(err)
	identify := auth.AuthenticatorFunc(func(_ context.Context, _ *http.Request, token string) (auth.Identity, error) {
		id, ok := who(token)
		if !ok {
			return id, registry.Errorf(registry.CodeUnauthenticated, "who is %q?", token)
		}
		return id, nil
	})
	schemas := schema.NewValidator()
	devices, err := ws.NewServer(ws.Config{
		Pod: pod, Admission: agent.NewAdmission(policy, schemas, agent.AdmissionLimits{}, local.Names()...),
		Auth: identify, Origins: origins,
	})
	h.must(err)
	handler, err := api.NewHandler(api.Config{
		Approvals: struct{ api.Approvals }{},
		Pod:       pod.ID(), Calls: pod.Calls, Directory: h.store, Conversations: h.store, AuditLog: h.store,
		Credentials: h.store, Usage: h.store,
		Kicker: pod.Hub, Turns: pod.Turns, Policy: policy, Auth: identify, Origins: origins, Invoker: invoker,
		Builtins: local, Device: devices, DeviceNode: devices.Node(), NodePath: "/ws/node",
	})
	h.must(err)
	h.http = httptest.NewServer(handler)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		h.must(devices.Close(ctx))
		h.http.Close()
		h.must(errors.Join(pod.Close(ctx), bus.Close(ctx)))
	})
	return h
}

func (h *house) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// phone is a scripted device: each of its commands tells what it was called with.
type phone struct {
	mu    sync.Mutex
	calls []string
}

// took returns the calls of a device since it was last asked.
func (p *phone) took() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := p.calls
	p.calls = nil
	return calls
}

func (p *phone) handle(_ context.Context, c client.Call) (any, error) {
	p.mu.Lock()
	p.calls = append(p.calls, c.Tool+string(c.Args))
	p.mu.Unlock()
	said := client.Result{Output: "did " + c.Tool}
	if c.Tool == "camera_snap" || c.Tool == "canvas_snapshot" {
		said.Parts = []client.Part{{Type: client.PartImage, MIMEType: "image/png", Data: []byte("picture")}}
	}
	return said, nil
}

// connect has a device connect and offer commands; those that end in ! need a person's consent, those that end in # are
// for admins only.
func (h *house) connect(token, session, device string, commands ...string) *phone {
	h.Helper()
	p := new(phone)
	options := []client.Option{
		client.WithToken(token), client.WithSession(session), client.WithDevice(device, "the "+session, "android"),
	}
	for _, name := range commands {
		tool := client.Tool{Name: name, Description: "does " + name}
		switch name[len(name)-1] {
		case '!':
			tool.Name, tool.SecurityLevel = name[:len(name)-1], "user_confirm"
		case '#':
			tool.Name, tool.SecurityLevel = name[:len(name)-1], "admin_only"
		}
		options = append(options, client.WithTool(tool, p.handle))
	}
	c, err := client.New(h.http.URL, options...)
	h.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	h.Cleanup(func() { cancel(); <-done })
	select {
	case <-c.Ready():
	case err := <-done:
		done <- err
		h.Fatal(err)
	case <-time.After(testTimeout):
		h.Fatal("the device does not get in")
	}
	return p
}

// allCommands are the conventional ones, with the levels that docs/devices.md recommends.
func allCommands() []string {
	return []string{
		"notify", "camera_snap!", "camera_list!", "camera_clip!", "screen_record!", "location_get!", "run!",
		"canvas_present", "canvas_hide", "canvas_navigate", "canvas_eval!", "canvas_snapshot", "canvas_a2ui_push",
		"canvas_a2ui_reset",
	}
}

// phoneCommands are those of phoneActions.
func phoneCommands() []string {
	return []string{
		"screen_snapshot!", "photos_latest!", "notifications_list!", "device_info", "device_status", "device_health",
		"device_permissions", "which",
	}
}

// talk calls a tool as a model in a conversation with a device.
func (h *house) talk(token, session string, kind agent.ContextKind, tool, args string) (registry.Result, error) {
	h.Helper()
	caller, _ := who(token)
	set := h.sets.Open(agent.SessionContext{
		Key: registry.Key{Tenant: registry.DefaultTenant, Session: session}, Caller: caller, Kind: kind,
	})
	shown, err := set.Tools(h.Context())
	h.must(err)
	if !slices.ContainsFunc(shown, func(t agent.ShownTool) bool { return t.ModelName == tool }) {
		h.Fatalf("the model is not shown %s", tool)
	}
	out, err := set.Invoke(h.Context(), agent.InvokeRequest{
		ModelName: tool, Args: registry.MustJSON(args), Turn: "turn-1",
	})
	return out.Result, err
}

// answered is what the API says of a call.
type answered struct {
	Success bool
	Output  string
	Code    registry.Code
	Detail  string
	Parts   []json.RawMessage
}

// post calls a tool over HTTP.
func (h *house) post(token, tool, args string) answered {
	h.Helper()
	var said answered
	if body := h.postRaw(token, tool, args); json.Unmarshal(body, &said) != nil {
		h.Fatalf("%s", body)
	}
	return said
}

// postRaw does so and returns the answer as it is.
func (h *house) postRaw(token, tool, args string) []byte {
	h.Helper()
	req, err := http.NewRequestWithContext(h.Context(), http.MethodPost, h.http.URL+"/api/tools/"+tool+"/call",
		bytes.NewReader(fmt.Appendf(nil, `{"args":%s}`, args)))
	h.must(err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	h.must(err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	h.must(err)
	return body
}

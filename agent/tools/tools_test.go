package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/agent/tools"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench makes built-in tools for a caller.
type bench struct {
	*testing.T
	store *memory.Store
	box   *agent.LocalTools
}

var noon = time.Date(2026, 7, 1, 10, 30, 0, 0, time.UTC)

func newBench(t *testing.T) *bench {
	t.Helper()
	policy, err := agent.NewPolicy(agent.PolicyRules{CallDeny: []string{"secret*"}})
	if err != nil {
		t.Fatal(err)
	}
	store := memory.New(memory.Options{})
	if _, err := store.Heartbeat(t.Context(), "pod"); err != nil {
		t.Fatal(err)
	}
	box, err := agent.NewLocalTools(tools.Registrations(tools.Deps{
		Directory: store, Policy: policy, Now: func() time.Time { return noon },
	})...)
	if err != nil {
		t.Fatal(err)
	}
	return &bench{T: t, store: store, box: box}
}

// run executes a tool as a caller, after checking the arguments as the invoker does.
func (b *bench) run(name string, caller auth.Identity, args string) (registry.Result, error) {
	b.Helper()
	return b.runIn(agent.SessionContext{Caller: caller}, name, args)
}

// runIn does the same in a context.
func (b *bench) runIn(sc agent.SessionContext, name, args string) (registry.Result, error) {
	b.Helper()
	tools, err := b.box.For(sc)
	if err != nil {
		b.Fatal(err)
	}
	i := slices.IndexFunc(tools, func(t agent.Tool) bool { return t.Spec().Name == name })
	err = schema.NewValidator().Validate(b.Context(), share.Owner{}, tools[i].Spec(), []byte(args), time.Time{})
	if err != nil {
		return registry.Result{}, err
	}
	res, err := tools[i].Execute(b.Context(), json.RawMessage(args))
	return res, err
}

// connect adds a session with tools.
func (b *bench) connect(s registry.Session, tools ...string) {
	b.Helper()
	s.Pod = "pod"
	claim, err := b.store.Claim(b.Context(), s)
	if err != nil {
		b.Fatal(err)
	}
	var specs []registry.ToolSpec
	for _, name := range tools {
		spec, err := registry.ToolSpec{Name: name}.Normalize()
		if err != nil {
			b.Fatal(err)
		}
		specs = append(specs, spec)
	}
	if err := b.store.SetTools(b.Context(), claim.Session, specs); err != nil {
		b.Fatal(err)
	}
}

func at(tenant, session, user string) registry.Session {
	return registry.Session{Key: registry.Key{Tenant: tenant, Session: session}, UserID: user}
}

func TestTime(t *testing.T) {
	b := newBench(t)
	for args, want := range map[string]string{
		`{}`:                           "2026-07-01T10:30:00Z, Wednesday (UTC, UTC), unix 1782901800",
		`{"timezone":"Europe/Vienna"}`: "2026-07-01T12:30:00+02:00, Wednesday (Europe/Vienna, CEST), unix 1782901800",
		`{"timezone":"Asia/Kolkata"}`:  "2026-07-01T16:00:00+05:30, Wednesday (Asia/Kolkata, IST), unix 1782901800",
	} {
		res, err := b.run("time", auth.Identity{}, args)
		if err != nil || !res.Success || res.Output != want {
			t.Errorf("%s: %+v, %v", args, res, err)
		}
		var said struct {
			Time     time.Time
			Timezone string
			Weekday  string
			Unix     int64
		}
		if err := json.Unmarshal(res.Structured.Raw(), &said); err != nil || !said.Time.Equal(noon) ||
			said.Unix != noon.Unix() ||
			said.Weekday != "Wednesday" || said.Timezone == "" {
			t.Errorf("%s: %s, %v", args, res.Structured, err)
		}
	}
	for _, zone := range []string{"Local", "Mars/Olympus", "../../etc/passwd", "/etc/localtime", "CET-1"} {
		res, err := b.run("time", auth.Identity{}, fmt.Sprintf(`{"timezone":%q}`, zone))
		if err != nil || res.Success || !strings.Contains(res.Output, "IANA") {
			t.Errorf("%s: %+v, %v", zone, res, err)
		}
	}
	for _, args := range []string{`{"timezone":""}`, `{"timezone":1}`, `{"zone":"UTC"}`} {
		if _, err := b.run("time", auth.Identity{}, args); !errors.Is(err, registry.CodeInvalidArguments) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// sessionIDs reads which sessions a result shows.
func sessionIDs(t *testing.T, res registry.Result) (ids []string, more bool) {
	t.Helper()
	var said struct {
		Sessions []struct {
			SessionID string `json:"session_id"`
			Tools     []string
		}
		More bool
	}
	if err := json.Unmarshal(res.Structured.Raw(), &said); err != nil || !res.Success {
		t.Fatalf("%+v, %v", res, err)
	}
	for _, s := range said.Sessions {
		ids = append(ids, s.SessionID+" "+strings.Join(s.Tools, ","))
	}
	slices.Sort(ids)
	return ids, said.More
}

func TestSessionsAreTheCallers(t *testing.T) {
	b := newBench(t)
	phone := at("default", "phone", "anna")
	phone.DeviceName, phone.Platform = `Anna's "phone"`, "android"
	b.connect(phone, "camera.snap", "secret_diary", "torch")
	b.connect(at("default", "desk", "bob"), "torch")
	b.connect(at("elsewhere", "far", "anna"), "torch")
	for name, tt := range map[string]struct {
		caller auth.Identity
		args   string
		want   []string
	}{
		"a user": {auth.Identity{Tenant: "default", User: "anna"}, `{}`, []string{"phone camera.snap,torch"}},
		"nobody": {auth.Identity{Tenant: "default"}, `{}`, []string{"desk torch", "phone camera.snap,torch"}},
		"by tool": {auth.Identity{Tenant: "default"}, `{"tool":"camera.snap"}`,
			[]string{"phone camera.snap,torch"}},
		"denied tool":   {auth.Identity{Tenant: "default"}, `{"tool":"secret_diary"}`, nil},
		"no such tool":  {auth.Identity{Tenant: "default"}, `{"tool":"nothing"}`, nil},
		"no name":       {auth.Identity{Tenant: "default"}, `{"tool":"1 2"}`, nil},
		"another user":  {auth.Identity{Tenant: "default", User: "carl"}, `{}`, nil},
		"other tenants": {auth.Identity{Tenant: "elsewhere", User: "anna"}, `{}`, []string{"far torch"}},
	} {
		res, err := b.run("sessions", tt.caller, tt.args)
		if err != nil {
			t.Fatal(err)
		}
		if got, more := sessionIDs(t, res); !slices.Equal(got, tt.want) || more {
			t.Errorf("%s: %v, more %v", name, got, more)
		}
		if strings.Contains(res.Output, "secret") {
			t.Errorf("%s: %s", name, res.Output)
		}
	}
	res, err := b.run("sessions", auth.Identity{Tenant: "default", User: "anna"}, `{}`)
	if want := `- session phone "Anna's \"phone\"" on "android": camera.snap, torch`; err != nil || res.Output != want {
		t.Errorf("%q, %v", res.Output, err)
	}
}

// Who calls directly learns of the devices that they could call: a user of their own, who names no user of all.
func TestSessionsOfACaller(t *testing.T) {
	b := newBench(t)
	b.connect(at("default", "phone", "anna"), "torch")
	b.connect(at("default", "tablet", "anna"), "torch")
	b.connect(at("default", "desk", "bob"), "torch")
	b.connect(at("elsewhere", "phone", "anna"), "torch")
	for name, tt := range map[string]struct {
		user, session, args string
		want                []string
	}{
		"by tool":        {"anna", "", `{"tool":"torch"}`, []string{"phone torch", "tablet torch"}},
		"by other tool":  {"anna", "", `{"tool":"camera"}`, nil},
		"a user":         {"anna", "", `{}`, []string{"phone torch", "tablet torch"}},
		"no user":        {"", "", `{}`, []string{"desk torch", "phone torch", "tablet torch"}},
		"another's user": {"bob", "", `{}`, []string{"desk torch"}},
	} {
		res, err := b.runIn(agent.SessionContext{
			Key:    registry.Key{Tenant: "default", Session: tt.session},
			Caller: auth.Identity{Tenant: "default", User: tt.user},
		}, "sessions", tt.args)
		if err != nil {
			t.Fatal(err)
		}
		if got, more := sessionIDs(t, res); !slices.Equal(got, tt.want) || more {
			t.Errorf("%s: %v, more %v", name, got, more)
		}
	}
}

func TestSessionsAreBounded(t *testing.T) {
	b := newBench(t)
	var names []string
	for i := range 120 {
		names = append(names, fmt.Sprintf("tool_%03d_%s", i, strings.Repeat("x", 50)))
	}
	for i := range 60 {
		b.connect(at("default", fmt.Sprintf("s%02d", i), ""), names...)
	}
	res, err := b.run("sessions", auth.Identity{Tenant: "default"}, `{}`)
	if err != nil {
		t.Fatal(err)
	}
	if ids, more := sessionIDs(t, res); len(ids) != 50 || !more || strings.Count(ids[0], ",") != 49 {
		t.Errorf("%d sessions, more %v", len(ids), more)
	}
	if len(res.Output) > 9<<10 || !strings.Contains(res.Output, "and 70 more") ||
		!strings.Contains(res.Output, "More sessions") {
		t.Errorf("%d bytes: …%s", len(res.Output), res.Output[max(0, len(res.Output)-200):])
	}
}

// brokenDirectory is a store that is away.
type brokenDirectory struct{}

func (brokenDirectory) List(context.Context, registry.Query) ([]registry.Entry, *registry.Cursor, error) {
	return nil, nil, registry.StoreUnavailable("list", errors.New("gone"))
}

func TestSessionsOfABrokenStore(t *testing.T) {
	b := newBench(t)
	policy, err := agent.NewPolicy(agent.PolicyRules{})
	if err != nil {
		t.Fatal(err)
	}
	if b.box, err = agent.NewLocalTools(tools.Registrations(tools.Deps{Directory: brokenDirectory{},
		Policy: policy})...); err != nil {
		t.Fatal(err)
	}
	if _, err := b.run("sessions", auth.Identity{Tenant: "default"}, `{}`); !errors.Is(err,
		registry.CodeStoreUnavailable) {
		t.Error(err)
	}
	if res, err := b.run("time", auth.Identity{}, `{}`); err != nil || !res.Success { // by the real clock
		t.Errorf("%+v, %v", res, err)
	}
}

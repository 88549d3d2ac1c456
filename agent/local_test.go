package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// call runs a local tool.
func (h *fixture) call(ctx context.Context, t agent.Tool, change ...func(*agent.Request)) (agent.Outcome, error) {
	req := agent.Request{Caller: auth.Identity{Tenant: "default", User: "anna"}, Tool: t.Spec().Name, Local: t,
		Turn: "t1"}
	for _, c := range change {
		c(&req)
	}
	return h.invoker.Invoke(ctx, req)
}

func TestLocalToolIsACallLikeAnyOther(t *testing.T) {
	var trace []string
	var seen agent.Invocation
	h := newFixture(t, agent.PolicyRules{CallDeny: []string{"denied"}}, func(c *agent.Config) {
		c.Hooks = []agent.Hook{hook{name: "one", trace: &trace,
			before: func(inv agent.Invocation) (agent.Decision, error) {
				seen = inv
				return agent.Modify(json.RawMessage(`{"a":2}`)), nil
			}}}
	})
	echo := localTool{spec("echo", `{"properties":{"a":{"maximum":2}}}`),
		func(ctx context.Context, args json.RawMessage) (registry.Result, error) {
			if d, ok := ctx.Deadline(); !ok || time.Until(d) > agent.DefaultCallTimeout ||
				ctx.Value(secretKey{}) != nil {
				t.Errorf("deadline %v, %v, value %v", d, ok, ctx.Value(secretKey{}))
			}
			return registry.NewResult(true, registry.MustJSON(string(args)), ""), nil
		}}
	out, err := h.call(context.WithValue(t.Context(), secretKey{}, "x"), echo,
		func(r *agent.Request) { r.Args = registry.MustJSON(`{"a":1}`) })
	if err != nil || out.Result.Output != `{"a":2}` || out.State != registry.StateSucceeded {
		t.Fatalf("%+v, %v", out, err)
	}
	if seen.Source != registry.SourceLocal || seen.Asked.String() != `{"a":1}` || seen.Turn != "t1" ||
		seen.Session.Key.Session != "" {
		t.Errorf("the hook saw %+v", seen)
	}
	rec := h.wait(out.CallID)
	if rec.Source != registry.SourceLocal || rec.Turn != "t1" || rec.UserID != "anna" || rec.SessionID != "" ||
		rec.State != registry.StateSucceeded || rec.Owner != h.pod.ID() {
		t.Errorf("record %+v", rec)
	}
	echo.ToolSpec = spec("echo", `{"properties":{"a":{"maximum":1}}}`)
	_, err = h.call(t.Context(), echo)
	wantCode(t, err, registry.CodeInvalidArguments)
	_, err = h.call(t.Context(), says("denied", "never"))
	wantCode(t, err, registry.CodePolicyDenied)
}

func TestLocalToolFails(t *testing.T) {
	h := newFixture(t, agent.PolicyRules{}, func(c *agent.Config) { c.Timeout = 50 * time.Millisecond })
	waits := func(ctx context.Context, _ json.RawMessage) (registry.Result, error) {
		<-ctx.Done()
		return registry.Result{}, ctx.Err()
	}
	for name, tt := range map[string]struct {
		execute func(context.Context, json.RawMessage) (registry.Result, error)
		code    registry.Code
		state   registry.State
	}{
		"panics": {func(context.Context, json.RawMessage) (registry.Result, error) { panic("secret") },
			registry.CodeInternal, registry.StateFailed},
		"plain error": {func(context.Context, json.RawMessage) (registry.Result, error) {
			return registry.Result{}, errors.New("secret")
		}, registry.CodeInternal, registry.StateFailed},
		"coded error": {func(context.Context, json.RawMessage) (registry.Result, error) {
			return registry.Result{}, registry.StoreUnavailable("list", errors.New("secret"))
		}, registry.CodeStoreUnavailable, registry.StateFailed},
		"too slow": {waits, registry.CodeTimeout, registry.StateTimedOut},
	} {
		out, err := h.call(t.Context(), localTool{spec("t", ""), tt.execute})
		if e := wantCode(t, err, tt.code); e.Dispatched != registry.DispatchedYes ||
			strings.Contains(e.Message, "secret") {
			t.Errorf("%s: %+v", name, e)
		}
		if rec := h.wait(out.CallID); rec.State != tt.state || rec.Dispatched != registry.DispatchedYes {
			t.Errorf("%s: record %+v", name, rec)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	out, err := h.call(ctx, localTool{spec("t", ""),
		func(ctx context.Context, args json.RawMessage) (registry.Result, error) {
			cancel()
			return waits(ctx, args)
		}}, func(r *agent.Request) { r.Timeout = time.Minute })
	wantCode(t, err, registry.CodeCancelled)
	if rec := h.wait(out.CallID); rec.State != registry.StateCancelled {
		t.Errorf("record %+v", rec)
	}
}

func TestLocalResultIsBounded(t *testing.T) {
	h := newFixture(t, agent.PolicyRules{})
	big := strings.Repeat("ü", agent.MaxLocalOutput)
	out, err := h.call(t.Context(), localTool{spec("t", ""),
		func(context.Context, json.RawMessage) (registry.Result, error) {
			return registry.Result{Success: true, Output: big, Structured: registry.MustJSON(`"` + big + `"`)}, nil
		}})
	if err != nil || len(out.Result.Output) > agent.MaxLocalOutput || !utf8.ValidString(out.Result.Output) ||
		!strings.HasSuffix(out.Result.Output, "1 MiB]") || !out.Result.Structured.IsZero() {
		t.Errorf("%d bytes of output, %d structured, %v", len(out.Result.Output), out.Result.Structured.Len(), err)
	}
}

// What a local tool returned is checked against its output schema without what the gateway says beside it. An answer
// that is too long is said not to be checked, and not to break the schema.
func TestLocalOutputIsChecked(t *testing.T) {
	h := newFixture(t, agent.PolicyRules{})
	object := func(text string) registry.JSON { return registry.MustJSON(`{"text":"` + text + `"}`) }
	for name, tt := range map[string]struct {
		schema string
		output registry.JSON
		want   string // begins the violation; empty: there is none
	}{
		"fits":    {`{"type":"object"}`, object("x"), ""},
		"breaks":  {`{"type":"array"}`, object("x"), "got object"},
		"long":    {`{"type":"object"}`, object(strings.Repeat("x", agent.MaxLocalOutput)), "not checked"},
		"is text": {`{"type":"string","maxLength":1}`, registry.MustJSON(`"x"`), ""},
	} {
		s := spec("t", "")
		s.OutputSchema = json.RawMessage(tt.schema)
		out, err := h.call(t.Context(), localTool{s,
			func(ctx context.Context, _ json.RawMessage) (registry.Result, error) {
				agent.ReportLost(ctx, "Something is lost.")
				return registry.NewResult(true, tt.output, ""), nil
			}})
		found := out.Result.Violations
		if err != nil || !strings.HasPrefix(out.Result.Output, "[Something is lost.]") {
			t.Errorf("%s: %.80q, %v", name, out.Result.Output, err)
		}
		if tt.want == "" && len(found) > 0 ||
			tt.want != "" && (len(found) != 1 || !strings.HasPrefix(found[0].Message, tt.want)) {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// Of parts that are too long together only the description stays, and a malformed one is left out.
func TestLocalPartsAreBounded(t *testing.T) {
	h := newFixture(t, agent.PolicyRules{})
	image := func(n int) registry.Part {
		return registry.Part{Type: registry.PartImage, MIMEType: "image/png", Data: make([]byte, n), Size: 7}
	}
	bad := image(1)
	bad.MIMEType = "text/html"
	given := []registry.Part{image(10), bad, image(registry.MaxInlinePart), image(20)}
	for range registry.MaxParts {
		given = append(given, image(1))
	}
	out, err := h.call(t.Context(), localTool{spec("t", ""),
		func(context.Context, json.RawMessage) (registry.Result, error) {
			return registry.Result{Success: true, Parts: given}, nil
		}})
	p := out.Result.Parts
	if err != nil || len(p) != registry.MaxParts-1 || registry.InlineSize(p) > registry.MaxInlinePart {
		t.Fatalf("%d parts, %v", len(p), err)
	}
	if len(p[0].Data) != 10 || p[0].Size != 10 || p[1].Data != nil || p[1].Size != registry.MaxInlinePart ||
		len(p[2].Data) != 20 {
		t.Errorf("sizes %d, %d, %d; data %d, %d, %d",
			p[0].Size, p[1].Size, p[2].Size, len(p[0].Data), len(p[1].Data), len(p[2].Data))
	}
}

// A local tool outlives its caller as any durable call does.
func TestLocalToolDurable(t *testing.T) {
	h := newFixture(t, agent.PolicyRules{})
	key := func(r *agent.Request) { r.IdempotencyKey = "k" }
	first, err := h.call(t.Context(), says("t", "once"), key)
	if err != nil || first.Result.Output != "once" {
		t.Fatalf("%+v, %v", first, err)
	}
	again, err := h.call(t.Context(), says("t", "twice"), key)
	if err != nil || again.CallID != first.CallID || again.Result.Output != "once" || !again.Replayed {
		t.Errorf("%+v, %v", again, err)
	}
	async, err := h.call(t.Context(), says("t", "later"), func(r *agent.Request) { r.Async = true })
	if err != nil {
		t.Fatal(err)
	}
	if rec := h.wait(async.CallID); rec.State != registry.StateSucceeded || rec.Source != registry.SourceLocal ||
		rec.Result.Output != "later" {
		t.Errorf("record %+v", rec)
	}
}

// By name alone a built-in tool is meant, with any target the tool of a device.
func TestBuiltinByName(t *testing.T) {
	var asked agent.SessionContext
	box := localTools(t, agent.Registration{Names: []string{"time"}, Make: func(sc agent.SessionContext) []agent.Tool {
		asked = sc
		return []agent.Tool{says("time", "noon")}
	}})
	h := newFixture(t, agent.PolicyRules{}, func(c *agent.Config) { c.LocalTools = box })
	h.connect("phone", "anna", "time")
	anna := auth.Identity{Tenant: "default", User: "anna"}
	for want, req := range map[string]agent.Request{
		"noon":       {Caller: anna, Tool: "time"},
		"from phone": {Caller: anna, Tool: "time", Target: registry.Target{SessionID: "phone"}},
	} {
		if out, err := h.invoker.Invoke(t.Context(), req); err != nil || out.Result.Output != want {
			t.Errorf("want %q, got %+v, %v", want, out, err)
		}
	}
	if asked.Caller != anna || asked.Key.Tenant != "default" {
		t.Errorf("made for %+v", asked)
	}
}

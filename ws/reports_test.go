package ws_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws"
)

// declare connects with capabilities and offers the tool echo.
func (g *gateway) declare(session, capabilities string) *device {
	g.t.Helper()
	d := g.connect(session)
	d.send(`{"type":"connect","capabilities":[` + capabilities + `]}`)
	d.expect("connected")
	d.send(`{"type":"register_tools","tools":[{"name":"echo"}]}`)
	d.expect("tools_registered")
	return d
}

func TestCancelReachesTheDevice(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	for _, tc := range []struct {
		session, capabilities string
		cancelled             bool
	}{{"understands", `"cancel"`, true}, {"does-not", `"drain"`, false}} {
		d := g.declare(tc.session, tc.capabilities)
		ctx, disconnect := context.WithCancel(context.Background())
		done := g.callContext(ctx, tc.session, registry.Call{ID: registry.NewCallID()}, "echo")
		id := d.expect("tool_call_request")["id"]
		disconnect()
		if o := await(t, done); !errors.Is(o.err, registry.CodeCancelled) {
			t.Fatalf("outcome: %+v", o)
		}
		if tc.cancelled {
			got := d.expect("tool_call_cancel")
			if reason, _ := got["reason"].(string); got["id"] != id || reason == "" {
				t.Fatalf("cancelled: %v", got)
			}
		}
		d.alive() // and was sent nothing else
		d.send(`{"type":"tool_result","id":"` + id.(string) + `","output":"too late"}`)
		if ack := d.expect("result_acknowledged"); ack["ignored"] != true {
			t.Fatalf("acknowledged: %v", ack)
		}
	}
}

func TestProgressReachesTheLogOfTheCall(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	d := g.declare("reporter", `"ack","progress"`)
	id, done := g.callDurable("reporter", "echo")
	d.expect("tool_call_request")
	long := strings.Repeat("ü", 1<<10)
	for _, frame := range []string{
		`{"type":"tool_call_accepted","id":ID}`,
		`{"type":"tool_progress","id":ID,"progress":1,"total":4,"message":"` + long + `"}`,
		`{"type":"tool_progress","id":ID,"chunk":"part"}`,
		`{"type":"tool_progress","id":ID,"chunk":{"n":12345678901234567890}}`,
		`{"type":"tool_progress","id":"of nobody","progress":0.5}`,
		`{"type":"tool_call_accepted","id":"of nobody"}`,
	} {
		d.send(strings.ReplaceAll(frame, "ID", `"`+id+`"`))
	}
	d.alive()
	var progress []registry.CallEvent
	eventually(t, "all progress is in the log", func() bool {
		events, _, err := g.pod.Calls.Events(context.Background(), registry.DefaultTenant, id, "")
		must(t, err)
		progress = progress[:0]
		for _, e := range events {
			if e.Type == registry.CallEventProgress {
				progress = append(progress, e)
			}
		}
		return len(progress) == 3
	})
	first := progress[0]
	if *first.Progress != 1 || *first.Total != 4 || first.Message != long[:1<<10] {
		t.Errorf("first: %+v", first)
	}
	if progress[1].Chunk != "part" || progress[1].Progress != nil || progress[2].Chunk != `{"n":12345678901234567890}` {
		t.Errorf("chunks: %+v", progress[1:])
	}
	eventually(t, "the call is running", func() bool {
		rec, err := g.pod.Calls.Get(context.Background(), registry.DefaultTenant, id)
		must(t, err)
		return rec.State == registry.StateRunning
	})
	d.send(`{"type":"tool_result","id":"` + id + `","output":"done"}`)
	d.expect("result_acknowledged")
	must(t, await(t, done).err)
}

func TestReportsAreBounded(t *testing.T) {
	t.Parallel()
	d := newGateway(t).connect("talker")
	for frame, names := range map[string]string{
		`"chunk":"` + strings.Repeat("x", 64<<10+1) + `"`: "65536 bytes",
		`"chunk":["` + strings.Repeat("x", 64<<10) + `"]`: "65536 bytes",
		`"progress":1e999`:            "finite",
		`"progress":1,"total":-1e999`: "finite",
	} {
		d.send(`{"type":"tool_progress","id":"1",` + frame + `}`)
		d.expectError("INVALID_MESSAGE", names)
	}
	d.send(`{"type":"tool_progress","id":"1","chunk":"` + strings.Repeat("x", 64<<10) + `"}`)
	d.alive()
}

func TestAcknowledgementAfterTheConnectionEnded(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	d := g.connectWithTools("hasty", "echo")
	id, done := g.callDurable("hasty", "echo")
	d.expect("tool_call_request")
	storing, release := make(chan struct{}), make(chan struct{})
	slow := func(e registry.Event) {
		if e == registry.EventSucceed {
			close(storing)
			<-release
		}
	}
	g.store.move.Store(&slow)
	d.send(`{"type":"tool_result","id":"` + id + `","output":"done"}`)
	receive(t, storing)
	d.alive() // the reader does not wait for the store
	must(t, d.conn.Close())
	g.waitReleased()
	close(release)
	if o := await(t, done); o.err != nil || o.result.Output != "done" {
		t.Fatalf("outcome: %+v", o)
	}
}

func TestMalformedAnswerFailsItsCallAtOnce(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	d := g.connectWithTools("mumbling", "echo")
	for _, tc := range []struct{ answer, code, names string }{
		{`{"type":"tool_result","id":ID,"output":"x","success":"yes"}`, "INVALID_MESSAGE", "success"},
		{`{"type":"tool_result","id":ID,"success":false,"error":{"code":3}}`, "INVALID_MESSAGE", "error"},
		{`{"type":"tool_error","id":ID,"error":3}`, "INVALID_MESSAGE", "error"},
		{`{"type":"tool_result","id":ID,"output":{"a":1,"a":2}}`, "INVALID_JSON", "output.a"},
		{`{"type":"tool_result","id":ID,"output":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`,
			"INVALID_JSON", "64"},
	} {
		done := g.call("mumbling", "echo", `{}`)
		id := d.expect("tool_call_request")["id"].(string)
		d.send(strings.ReplaceAll(tc.answer, "ID", `"`+id+`"`))
		d.expectError(tc.code, tc.names)
		o := await(t, done)
		var failed *registry.Error
		if !errors.As(o.err, &failed) || failed.Code != registry.CodeInvalidResult ||
			failed.Dispatched != registry.DispatchedYes ||
			!strings.Contains(failed.Message, tc.names) {
			t.Fatalf("%.80s: %+v", tc.answer, o)
		}
		d.alive()
	}
	// What is no answer fails nothing.
	done := g.call("mumbling", "echo", `{}`)
	id := d.expect("tool_call_request")["id"].(string)
	d.send(`{"type":"tool_progress","id":"` + id + `","progress":"half"}`)
	d.expectError("INVALID_MESSAGE", "progress")
	d.send(`{"type":"tool_result","id":"` + id + `"}`)
	d.expect("result_acknowledged")
	must(t, await(t, done).err)
}

func TestOversizeAnswerFailsItsCall(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) { c.MaxFrame = 4096 })
	d := g.connectWithTools("verbose", "echo")
	done := g.call("verbose", "echo", `{}`)
	id := d.expect("tool_call_request")["id"].(string)
	d.send(fmt.Sprintf(`{"type":"tool_result","id":%q,"output":%q}`, id, strings.Repeat("x", 4096)))
	d.expectError("MESSAGE_TOO_BIG", "4096 bytes")
	d.expectClose(ws.CloseTooBig)
	if o := await(t, done); !errors.Is(o.err, registry.CodeInvalidResult) {
		t.Fatalf("outcome: %+v", o)
	}
}

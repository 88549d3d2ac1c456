package trace_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"unicode/utf8"

	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	otel "go.opentelemetry.io/otel/trace"

	"github.com/farhand/farhand/internal/trace"
)

const (
	callersTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	callersParent = "00-" + callersTrace + "-00f067aa0ba902b7-01"
	unsampled     = "00-" + callersTrace + "-00f067aa0ba902b7-00"
)

// recorded returns a Tracer, and what it has recorded.
func recorded(t testing.TB, opts ...sdk.TracerProviderOption) (trace.Tracer, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	p := sdk.NewTracerProvider(append(opts, sdk.WithSpanProcessor(spans))...)
	t.Cleanup(func() { _ = p.Shutdown(context.Background()) })
	return trace.New(p), spans
}

func allow() bool { return true }

func deny() bool { return false }

// TestOffCostsNothing: without a trace, and in one that is not sampled, a step allocates nothing.
func TestOffCostsNothing(t *testing.T) {
	tracer, spans := recorded(t)
	dropped, _ := tracer.Serve(context.Background(), trace.Server, "request", unsampled, "", allow)
	for name, ctx := range map[string]context.Context{"off": context.Background(), "not sampled": dropped} {
		tool := strings.Repeat("x", 8)
		n := testing.AllocsPerRun(100, func() {
			ctx, span := trace.Start(ctx, trace.Internal, "execute_tool", tool)
			span.Text(trace.Tool, tool).Number(trace.InputCount, 1).End("busy")
			if trace.SampledID(ctx) != "" {
				t.Error("a trace that is not sampled has an id to look up")
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	if got := spans.Ended(); len(got) != 0 {
		t.Errorf("%d spans", len(got))
	}
	if trace.ID(dropped) != callersTrace {
		t.Error("the trace that is not sampled lost its id")
	}
}

// TestTheCallersMark is honored if allowed. Otherwise the trace begins anew, with a link.
func TestTheCallersMark(t *testing.T) {
	never := sdk.WithSampler(sdk.ParentBased(sdk.NeverSample()))
	for name, c := range map[string]struct {
		parent, state string
		allow         func() bool
		same, sampled bool
	}{
		"allowed":        {callersParent, "", allow, true, true},
		"above bound":    {callersParent, "", deny, false, false},
		"not marked":     {unsampled, "", deny, true, false},
		"none":           {"", "", deny, false, false},
		"malformed":      {"00-xyz", "", deny, false, false},
		"too long":       {callersParent + strings.Repeat("-0", 300), "", deny, false, false},
		"long state":     {callersParent, "a=" + strings.Repeat("x", 600), allow, true, true},
		"zero id":        {"00-00000000000000000000000000000000-00f067aa0ba902b7-01", "", deny, false, false},
		"unknown future": {"ff" + callersParent[2:], "", deny, false, false},
	} {
		tracer, _ := recorded(t, never)
		ctx, span := tracer.Serve(context.Background(), trace.Server, "request", c.parent, c.state, c.allow)
		if same := trace.ID(ctx) == callersTrace; same != c.same || span.Records() != c.sampled {
			t.Errorf("%s: same trace %t, recorded %t", name, same, span.Records())
		}
		if _, state := trace.Headers(ctx); len(state) > 512 {
			t.Errorf("%s: a tracestate of %d bytes is passed on", name, len(state))
		}
	}
	tracer, spans := recorded(t)
	_, span := tracer.Serve(context.Background(), trace.Server, "request", callersParent, "", deny)
	span.End("")
	s := spans.Ended()[0]
	if s.Parent().IsValid() || len(s.Links()) != 1 || s.Links()[0].SpanContext.TraceID().String() != callersTrace {
		t.Errorf("parent %v, links %v", s.Parent(), s.Links())
	}
}

// TestTextIsBounded in bytes, and is UTF-8, without which a collector rejects the whole batch.
func TestTextIsBounded(t *testing.T) {
	tracer, spans := recorded(t)
	ctx, root := tracer.Serve(context.Background(), trace.Server, "request", "", "", allow)
	for _, text := range []string{strings.Repeat("é", 1<<16), "\xff\xfe", strings.Repeat("a", 255) + "€"} {
		_, span := trace.Start(ctx, trace.Internal, "hook", text)
		span.Text(trace.Tool, text).Texts(trace.Finish, text).End(text)
	}
	root.End("")
	for _, s := range spans.Ended() {
		words := []string{s.Name(), s.Status().Description}
		for _, a := range s.Attributes() {
			words = append(words, a.Value.String())
		}
		for _, w := range words {
			if len(w) > 300 || !utf8.ValidString(w) {
				t.Errorf("%d bytes, valid %t", len(w), utf8.ValidString(w))
			}
		}
	}
}

// TestJoinContinuesATrace on another pod, also one that is not sampled.
func TestJoinContinuesATrace(t *testing.T) {
	there, _ := recorded(t)
	here, spans := recorded(t)
	ctx, _ := there.Serve(context.Background(), trace.Server, "request", callersParent, "vendor=1", allow)
	joined, span := here.Start(here.Join(context.Background(), trace.Context(ctx)), trace.Client, "device", "echo")
	span.End("")
	s := spans.Ended()[0]
	if s.Parent().SpanID().String() != trace.SpanID(ctx) || trace.Context(joined)[:36] != callersParent[:36] ||
		!strings.HasSuffix(trace.Context(joined), " vendor=1") {
		t.Errorf("parent %s of %s: %s", s.Parent().SpanID(), trace.SpanID(ctx), trace.Context(joined))
	}
	dropped, span := here.Start(here.Join(context.Background(), unsampled), trace.Client, "device", "echo")
	if span.Records() || trace.Parent(dropped) != unsampled {
		t.Errorf("recorded %t, %q", span.Records(), trace.Parent(dropped))
	}
	if garbled := here.Join(context.Background(), "garbled"); trace.ID(garbled) != "" {
		t.Error("a garbled trace was joined")
	}
}

// TestParentsAreReadAsOpenTelemetryDoes, which the short way for headers of version 00 must not change: each byte of a
// header is replaced in turn.
func TestParentsAreReadAsOpenTelemetryDoes(t *testing.T) {
	tracer, _ := recorded(t)
	check := func(parent string) {
		t.Helper()
		want := otel.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(),
			propagation.MapCarrier{"traceparent": parent, "tracestate": "vendor=1"}))
		got := otel.SpanContextFromContext(tracer.Join(context.Background(), parent+" vendor=1"))
		if !got.Equal(want) {
			t.Errorf("%q: %v, want %v", parent, got, want)
		}
	}
	for i := range callersParent {
		for _, c := range "0139aAfFgG-_ /:@`é" {
			if c != ' ' { // ends it between pods
				check(callersParent[:i] + string(c) + callersParent[i+1:])
			}
		}
		check(callersParent[:i])
	}
	for _, parent := range []string{
		callersParent, callersParent + "-", "01" + callersParent[2:] + "-more", "00-" + strings.Repeat("0", 32) +
			callersParent[35:], callersParent[:36] + strings.Repeat("0", 16) + "-01",
	} {
		check(parent)
	}
}

// TestLogsNameTheTrace, and only of a context that has one.
func TestLogsNameTheTrace(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(trace.Logs(slog.NewJSONHandler(&out, nil))).With("pod", "a")
	tracer, _ := recorded(t)
	ctx, _ := tracer.Serve(context.Background(), trace.Server, "request", callersParent, "", allow)
	log.InfoContext(ctx, "first")
	log.Info("second")
	dec := json.NewDecoder(&out)
	for _, want := range []string{callersTrace, ""} {
		var line struct {
			Pod     string `json:"pod"`
			TraceID string `json:"trace_id"`
		}
		if err := dec.Decode(&line); err != nil || line.TraceID != want || line.Pod != "a" {
			t.Errorf("%+v, %v; want %q", line, err, want)
		}
	}
}

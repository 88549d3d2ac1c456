package trace

import (
	"context"
	"strings"

	otel "go.opentelemetry.io/otel/trace"
)

// Tracer begins the spans of a pod where a trace enters it. It is safe for concurrent use. The zero value is off: it
// neither records nor makes ids.
type Tracer struct{ *entrance }

// entrance is a Tracer that is on.
type entrance struct {
	tracer otel.Tracer
	kinds  [Client + 1][]otel.SpanStartOption // by Kind, made once: most spans that begin are not recorded
}

// Stats counts the spans that a pod has recorded.
type Stats struct {
	Exported int64 // accepted by the collector
	Rejected int64 // by the collector, which took the rest of their batch
	Failed   int64 // lost because their batch could not be sent
	Overflow int64 // dropped because the queue was full
}

// New returns a Tracer that records to p; nil: the zero value.
func New(p otel.TracerProvider) Tracer {
	if p == nil {
		return Tracer{}
	}
	e := &entrance{tracer: p.Tracer(Scope)}
	for _, kind := range []Kind{Internal, Server, Client} {
		e.kinds[kind] = []otel.SpanStartOption{otel.WithSpanKind(kind)}
	}
	return Tracer{e}
}

// On reports whether the gateway makes traces.
func (t Tracer) On() bool { return t.entrance != nil }

// Serve begins the first span of a request or message. parent and state are the headers of its sender; empty: it has
// none. A sender that marks its trace as sampled asks the gateway to record it. allow decides whether the gateway does
// so. If not, Serve begins another trace with an id of its own, which the sampler decides about, and links it to the
// sender's. allow is only called for such a sender.
func (t Tracer) Serve(
	ctx context.Context, kind Kind, name, parent, state string, allow func() bool,
) (context.Context, Span) {
	if t.entrance == nil {
		return ctx, Span{}
	}
	from, name := remote(ctx, parent, state), cut(name)
	if c := otel.SpanContextFromContext(from); c.IsSampled() && !allow() {
		return start(ctx, t.tracer, name, "", otel.WithSpanKind(kind), otel.WithNewRoot(),
			otel.WithLinks(otel.Link{SpanContext: c}))
	}
	return start(from, t.tracer, name, "", t.kinds[kind]...)
}

// Join returns ctx with the trace that came from another pod, as Context returned it there.
func (t Tracer) Join(ctx context.Context, from string) context.Context {
	if t.entrance == nil || from == "" {
		return ctx
	}
	parent, state, _ := strings.Cut(from, " ")
	return remote(ctx, parent, state)
}

// Start is the function Start for a context whose span may be one of another pod.
func (t Tracer) Start(ctx context.Context, kind Kind, operation, object string) (context.Context, Span) {
	if t.entrance == nil || !otel.SpanContextFromContext(ctx).IsSampled() {
		return ctx, Span{}
	}
	return start(ctx, t.tracer, operation, object, t.kinds[kind]...)
}

// Context returns the trace of ctx for Tracer.Join on another pod: the header traceparent, and after a space
// tracestate if there is one. Empty: there is no trace.
func Context(ctx context.Context) string {
	parent, state := Headers(ctx)
	if state != "" {
		parent += " " + state
	}
	return parent
}

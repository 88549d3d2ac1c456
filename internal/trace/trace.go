// Package trace carries OpenTelemetry's spans through the gateway. It knows OpenTelemetry's API, not its SDK, so
// packages that start spans depend on neither an exporter nor a global provider. docs/traces.md lists the spans.
//
//	request, message ─▶ Tracer.Serve ─▶ ctx ─▶ Start, Start, … ─▶ Context ─▶ another pod ─▶ Tracer.Join
//
// Only the places where a trace enters a pod have a Tracer: the HTTP API, the devices' sockets, and messages of other
// pods. Everywhere else Start finds the span in the context. If the trace is not sampled, Start returns the context
// unchanged, and an empty Span whose methods do nothing: without tracing the cost is one look into the context.
package trace

import (
	"context"
	"net/http"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	otel "go.opentelemetry.io/otel/trace"
)

// Scope is the instrumentation scope of all spans.
const Scope = "github.com/farhand/farhand"

// Bounds of what callers, devices and models can put into a span, in bytes.
const (
	maxText  = 256 // of a name or a value; longer ones are cut
	maxState = 512 // of a tracestate; a longer one is dropped
)

// Kind is the role of a span in a request.
type Kind = otel.SpanKind

// The kinds.
const (
	Internal = otel.SpanKindInternal
	Server   = otel.SpanKindServer
	Client   = otel.SpanKindClient
)

// Span is a span that records, or nothing: its zero value. It is safe for concurrent use.
type Span struct{ span otel.Span }

// Start begins a span below the one in ctx. Its name is the operation and the object, which may be empty. The caller
// must call End.
func Start(ctx context.Context, kind Kind, operation, object string) (context.Context, Span) {
	parent := otel.SpanFromContext(ctx)
	if !parent.SpanContext().IsSampled() {
		return ctx, Span{}
	}
	return start(ctx, parent.TracerProvider().Tracer(Scope), operation, object, otel.WithSpanKind(kind))
}

func start(
	ctx context.Context, t otel.Tracer, operation, object string, opts ...otel.SpanStartOption,
) (context.Context, Span) {
	name := operation
	if object != "" {
		name += " " + cut(object)
	}
	ctx, span := t.Start(ctx, name, opts...)
	if !span.IsRecording() {
		return ctx, Span{}
	}
	return ctx, Span{span}
}

// Records reports whether the span records. Callers use it to skip work for attributes of spans that do not record.
func (s Span) Records() bool { return s.span != nil }

// Text sets an attribute, unless the value is empty.
func (s Span) Text(key Key, value string) Span {
	if s.span != nil && value != "" {
		s.span.SetAttributes(attribute.String(string(key), cut(value)))
	}
	return s
}

// Texts sets an attribute that is a list of one value, unless the value is empty.
func (s Span) Texts(key Key, value string) Span {
	if s.span != nil && value != "" {
		s.span.SetAttributes(attribute.StringSlice(string(key), []string{cut(value)}))
	}
	return s
}

// Number sets an attribute.
func (s Span) Number(key Key, n int64) Span {
	if s.span != nil {
		s.span.SetAttributes(attribute.Int64(string(key), n))
	}
	return s
}

// End ends the span. failure is the kind of the error, such as an error code; empty: none. Further calls do nothing.
func (s Span) End(failure string) {
	if s.span == nil {
		return
	}
	if failure != "" {
		s.Text(ErrorType, failure)
		s.span.SetStatus(codes.Error, cut(failure))
	}
	s.span.End()
}

// cut bounds text, at the end of a character. Text that is not UTF-8 would make OTLP reject the whole batch.
func cut(text string) string {
	if len(text) > maxText {
		end := maxText
		for end > maxText-utf8.UTFMax && !utf8.RuneStart(text[end]) {
			end--
		}
		text = text[:end]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// Ref is the id of a trace. Its zero value is none.
type Ref struct{ id otel.TraceID }

// RefOf returns the id of the trace in ctx. It allocates nothing, so it suits ids that few calls show.
func RefOf(ctx context.Context) Ref { return Ref{otel.SpanContextFromContext(ctx).TraceID()} }

// String returns the id in hexadecimal; empty: none.
func (r Ref) String() string {
	if r.id.IsValid() {
		return r.id.String()
	}
	return ""
}

// ID returns the id of the trace in ctx, in hexadecimal; empty: none.
func ID(ctx context.Context) string { return RefOf(ctx).String() }

// SampledID is ID for a trace that is recorded, and so can be looked up.
func SampledID(ctx context.Context) string {
	if c := otel.SpanContextFromContext(ctx); c.IsSampled() {
		return c.TraceID().String()
	}
	return ""
}

// SpanID returns the id of the span in ctx, in hexadecimal; empty: none.
func SpanID(ctx context.Context) string {
	if c := otel.SpanContextFromContext(ctx); c.HasSpanID() {
		return c.SpanID().String()
	}
	return ""
}

// Carry returns ctx with the span of from, for work that outlives its request.
func Carry(ctx, from context.Context) context.Context {
	if span := otel.SpanFromContext(from); span.SpanContext().IsValid() {
		return otel.ContextWithSpan(ctx, span)
	}
	return ctx
}

// Parent returns the W3C header traceparent for a request that ctx makes; empty: there is no trace.
func Parent(ctx context.Context) string {
	c := otel.SpanContextFromContext(ctx)
	if !c.IsValid() {
		return ""
	}
	return header(c)
}

// Headers returns the W3C headers traceparent and tracestate for a request that ctx makes; both may be empty.
func Headers(ctx context.Context) (parent, state string) {
	c := otel.SpanContextFromContext(ctx)
	if !c.IsValid() {
		return "", ""
	}
	return header(c), c.TraceState().String()
}

// Inject sets the headers of Headers, if there is a trace.
func Inject(ctx context.Context, h http.Header) {
	parent, state := Headers(ctx)
	if parent != "" {
		h.Set("traceparent", parent)
	}
	if state != "" {
		h.Set("tracestate", state)
	}
}

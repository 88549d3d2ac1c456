package trace

import (
	"context"
	"encoding/hex"

	"go.opentelemetry.io/otel/propagation"
	otel "go.opentelemetry.io/otel/trace"
)

// example is a header traceparent of version 00. All headers that this package makes have its length.
const example = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// Places in such a header.
const (
	traceAt = len("00-")
	spanAt  = traceAt + 2*len(otel.TraceID{}) + 1
	flagsAt = spanAt + 2*len(otel.SpanID{}) + 1
)

// header returns the W3C header traceparent of c.
func header(c otel.SpanContext) string {
	trace, span, flags := c.TraceID(), c.SpanID(), c.TraceFlags()&otel.FlagsSampled
	b := make([]byte, 0, len(example))
	b = hex.AppendEncode(append(b, "00-"...), trace[:])
	b = hex.AppendEncode(append(b, '-'), span[:])
	return string(hex.AppendEncode(append(b, '-'), []byte{byte(flags)}))
}

// remote returns ctx with the span that the two headers name. If traceparent is malformed, ctx is unchanged. A
// malformed or too long tracestate is dropped.
func remote(ctx context.Context, parent, state string) context.Context {
	if parent == "" || len(parent) > maxText {
		return ctx
	}
	if len(state) > maxState {
		state = ""
	}
	c, ok := parse(parent)
	if !ok {
		return propagation.TraceContext{}.Extract(ctx, headers{parent, state})
	}
	if state != "" {
		c.TraceState, _ = otel.ParseTraceState(state)
	}
	return otel.ContextWithRemoteSpanContext(ctx, otel.NewSpanContext(c))
}

// parse reads a valid header of version 00, as pods send with each call, in a third of the time that
// propagation.TraceContext takes. Other headers are left to that: those of later versions, and malformed ones.
func parse(h string) (c otel.SpanContextConfig, ok bool) {
	var flags [1]byte
	if len(h) != len(example) || h[:traceAt] != "00-" || h[spanAt-1] != '-' || h[flagsAt-1] != '-' ||
		!unhex(c.TraceID[:], h[traceAt:]) || !unhex(c.SpanID[:], h[spanAt:]) || !unhex(flags[:], h[flagsAt:]) {
		return c, false
	}
	c.TraceFlags, c.Remote = otel.TraceFlags(flags[0]), true
	return c, c.TraceID.IsValid() && c.SpanID.IsValid() && c.TraceFlags <= otel.FlagsSampled|otel.FlagsRandom
}

// unhex fills dst from the start of text, whose letters must be lower case.
func unhex(dst []byte, text string) bool {
	for i := range dst {
		high, low := digit(text[2*i]), digit(text[2*i+1])
		if high|low > 0xf {
			return false
		}
		dst[i] = high<<4 | low
	}
	return true
}

func digit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	default:
		return 0xff
	}
}

// headers implements propagation.TextMapCarrier.
type headers struct{ parent, state string }

func (h headers) Get(name string) string {
	switch name {
	case "traceparent":
		return h.parent
	case "tracestate":
		return h.state
	default:
		return ""
	}
}

func (headers) Set(string, string) {}

func (headers) Keys() []string { return nil }

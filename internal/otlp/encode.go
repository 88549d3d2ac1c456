package otlp

import (
	"encoding/binary"
	"math"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"
)

// The numbers of fields below are those of opentelemetry/proto/trace/v1/trace.proto, version 1. They never change. The
// module go.opentelemetry.io/proto/otlp would bring gRPC into the binary (docs/decisions/0079-traces.md).
// TestSpansAreReadByOfficialTypes, in a module of its own, reads the bytes with its types.

// message is the fields of a protobuf message. Empty values are left out, as in proto3.
type message []byte

// Wire types of protobuf.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)

func (m *message) tag(field, wire int) { *m = binary.AppendUvarint(*m, uint64(field<<3|wire)) }

func (m *message) text(field int, value string) {
	if value != "" {
		m.tag(field, wireBytes)
		*m = append(binary.AppendUvarint(*m, uint64(len(value))), value...)
	}
}

// sub adds a message, even if it is empty.
func (m *message) sub(field int, value message) {
	m.tag(field, wireBytes)
	*m = append(binary.AppendUvarint(*m, uint64(len(value))), value...)
}

func (m *message) number(field int, value uint64) {
	if value != 0 {
		m.tag(field, wireVarint)
		*m = binary.AppendUvarint(*m, value)
	}
}

func (m *message) fixed64(field int, value uint64) {
	m.tag(field, wireFixed64)
	*m = binary.LittleEndian.AppendUint64(*m, value)
}

func (m *message) fixed32(field int, value uint32) {
	m.tag(field, wireFixed32)
	*m = binary.LittleEndian.AppendUint32(*m, value)
}

func (m *message) attributes(field int, all []attribute.KeyValue) {
	for _, a := range all {
		var pair message
		pair.text(1, string(a.Key))
		pair.sub(2, valueOf(a.Value))
		m.sub(field, pair)
	}
}

// valueOf returns an AnyValue.
func valueOf(v attribute.Value) (m message) {
	switch v.Type() {
	case attribute.BOOL:
		m.tag(2, wireVarint)
		n := byte(0)
		if v.AsBool() {
			n = 1
		}
		m = append(m, n)
	case attribute.INT64:
		m.tag(3, wireVarint)
		m = binary.AppendUvarint(m, uint64(v.AsInt64()))
	case attribute.FLOAT64:
		m.fixed64(4, math.Float64bits(v.AsFloat64()))
	case attribute.STRINGSLICE:
		var list message
		for _, text := range v.AsStringSlice() {
			list.sub(1, valueOf(attribute.StringValue(text)))
		}
		m.sub(5, list)
	default: // a text; lists of numbers, which the gateway does not use, become their JSON
		text := v.String()
		m.tag(1, wireBytes)
		m = append(binary.AppendUvarint(m, uint64(len(text))), text...)
	}
	return m
}

// Flags of a span in addition to those of W3C: whether its parent is of another process.
const (
	flagKnowsRemote = 1 << 8
	flagIsRemote    = 1 << 9
)

func flagsOf(c, parent api.SpanContext) uint32 {
	flags := uint32(c.TraceFlags()) | flagKnowsRemote
	if parent.IsRemote() {
		flags |= flagIsRemote
	}
	return flags
}

func encodeSpan(s trace.ReadOnlySpan) (m message) {
	c, parent := s.SpanContext(), s.Parent()
	id, span := c.TraceID(), c.SpanID()
	m.text(1, string(id[:]))
	m.text(2, string(span[:]))
	m.text(3, c.TraceState().String())
	if parent.HasSpanID() {
		of := parent.SpanID()
		m.text(4, string(of[:]))
	}
	m.text(5, s.Name())
	m.number(6, uint64(s.SpanKind()))
	m.fixed64(7, uint64(s.StartTime().UnixNano()))
	m.fixed64(8, uint64(s.EndTime().UnixNano()))
	m.attributes(9, s.Attributes())
	m.number(10, uint64(s.DroppedAttributes()))
	for _, l := range s.Links() {
		var link message
		id, span := l.SpanContext.TraceID(), l.SpanContext.SpanID()
		link.text(1, string(id[:]))
		link.text(2, string(span[:]))
		link.text(3, l.SpanContext.TraceState().String())
		link.attributes(4, l.Attributes)
		link.fixed32(6, flagsOf(l.SpanContext, l.SpanContext))
		m.sub(13, link)
	}
	var status message
	status.text(2, s.Status().Description)
	switch s.Status().Code {
	case codes.Ok:
		status.number(3, 1)
	case codes.Error:
		status.number(3, 2)
	}
	if len(status) > 0 {
		m.sub(15, status)
	}
	m.fixed32(16, flagsOf(c, parent))
	return m
}

// encode returns an ExportTraceServiceRequest. All spans are of one resource and one scope, those of the gateway.
func encode(resource []attribute.KeyValue, version string, spans []trace.ReadOnlySpan) []byte {
	var scope, inScope, of, inResource, request message
	scope.text(1, spans[0].InstrumentationScope().Name)
	scope.text(2, version)
	inScope.sub(1, scope)
	for _, s := range spans {
		inScope.sub(2, encodeSpan(s))
	}
	of.attributes(1, resource)
	inResource.sub(1, of)
	inResource.sub(2, inScope)
	request.sub(1, inResource)
	return request
}

// rejected returns how many spans an ExportTraceServiceResponse rejects, and why.
func rejected(response []byte) (n int64, why string) {
	fields(response, func(field int, text []byte, _ uint64) {
		if field != 1 { // partial_success
			return
		}
		fields(text, func(field int, text []byte, number uint64) {
			switch field {
			case 1:
				n = int64(number)
			case 2:
				why = string(text)
			}
		})
	})
	return n, why
}

// fields calls each with the fields of a message up to its first malformed one.
func fields(m []byte, each func(field int, text []byte, number uint64)) {
	uvarint := func() (uint64, bool) {
		v, n := binary.Uvarint(m)
		if n <= 0 {
			return 0, false
		}
		m = m[n:]
		return v, true
	}
	for len(m) > 0 {
		tag, ok := uvarint()
		if !ok {
			return
		}
		size := uint64(0)
		switch tag & 7 {
		case wireVarint:
			v, ok := uvarint()
			if !ok {
				return
			}
			each(int(tag>>3), nil, v)
			continue
		case wireBytes:
			if size, ok = uvarint(); !ok {
				return
			}
		case wireFixed64:
			size = 8
		case wireFixed32:
			size = 4
		default:
			return
		}
		if size > uint64(len(m)) {
			return
		}
		each(int(tag>>3), m[:size], 0)
		m = m[size:]
	}
}

package bus

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/farhand/farhand/registry"
)

// Envelopes and replies have one binary form: a version, flags, and fields prefixed with their length. An error inside
// is the JSON of registry.Error, because errors are rare and have many parts.
//
// JSON would need no code here, but is slower. With arguments and output of 100 bytes each, encoding and decoding the
// envelope and the reply of one call took 14 µs as JSON; this takes 2.7 µs (410 and 55 µs with 10 KB). A whole call
// between two pods, under load, takes 11 µs of processor time (docs/decisions/0011-batches.md). BenchmarkCodec repeats
// the measurement of this form.

// Flags of an envelope.
const (
	flagDurable = 1 << iota
	flagExact
	flagAnswered   // a result follows
	flagUnanswered // an error follows
)

// Flags of a reply.
const (
	flagDelivered = 1 << iota
	flagRunning
	flagWake
	flagResult // a result follows
	flagFailed // an error follows
)

// Flags of a result.
const (
	flagSuccess = 1 << iota
	flagStructured
	flagWithheld // an error follows
	flagParts    // parts follow
	flagURIs     // the URIs of the parts follow them
	flagViolations
)

// encodeEnvelope returns an envelope as a message. It sets the version if the envelope has none.
func encodeEnvelope(e registry.Envelope) ([]byte, error) {
	if e.V == 0 {
		e.V = registry.EnvelopeVersion
	}
	flags := flag(flagDurable, e.Durable) | flag(flagExact, e.Exact) | flag(flagAnswered, e.Result != nil) |
		flag(flagUnanswered, e.Err != nil)
	size := e.Args.Len() + len(e.CallID) + len(e.ReplyTo) + len(e.Tenant) + len(e.Session) + len(e.Tool) +
		len(e.Spec) + len(e.Reason)
	b := append(make([]byte, 0, 64+size), messageEnvelope, byte(e.V), flags)
	for _, text := range []string{e.CallID, e.ReplyTo, string(e.Kind), e.Tenant, e.Session, e.Tool, e.Spec, e.Reason} {
		b = appendField(b, text)
	}
	b = binary.AppendVarint(b, e.Generation)
	b = binary.AppendVarint(b, e.TimeoutMS)
	b = binary.AppendVarint(b, int64(e.Attributes))
	b = binary.AppendVarint(b, e.Attempt)
	b = binary.AppendUvarint(b, uint64(len(e.Proofs)))
	for _, proof := range e.Proofs {
		b = appendField(b, proof)
	}
	b = appendField(b, e.Args.Raw())
	var err error
	if e.Result != nil {
		b, err = appendResult(b, e.Result)
	}
	if e.Err != nil && err == nil {
		b, err = appendError(b, e.Err)
	}
	return b, err
}

// keptMessage is the maximum length of a message, in bytes, that its ids may keep in memory.
const keptMessage = 1 << 10

// decodeEnvelope is the inverse of encodeEnvelope, without the first byte. The call and the pod that waits for a reply
// are at the same place in every version, so that an unknown version can be rejected with a reply.
func decodeEnvelope(text string) (*registry.Envelope, error) {
	r := fieldReader{text: text}
	version, flags := r.byte(), r.byte()
	e := &registry.Envelope{
		V: int(version), Durable: flags&flagDurable != 0, Exact: flags&flagExact != 0,
		CallID: r.field(), ReplyTo: r.field(),
	}
	if len(text) > keptMessage { // the ids live while the device works, and must not keep the arguments
		e.CallID, e.ReplyTo = strings.Clone(e.CallID), strings.Clone(e.ReplyTo)
	}
	bad := &badMessage{callID: e.CallID, replyTo: e.ReplyTo}
	if e.V != registry.EnvelopeVersion && !r.broken {
		bad.version = e.V
		bad.cause = fmt.Errorf("envelope of version %d, only %d is known", e.V, registry.EnvelopeVersion)
		return nil, bad
	}
	e.Kind = registry.EnvelopeKind(r.field())
	e.Tenant, e.Session, e.Tool, e.Spec, e.Reason = r.field(), r.field(), r.field(), r.field(), r.field()
	e.Generation, e.TimeoutMS = r.number(), r.number()
	e.Attributes, e.Attempt = uint64(r.number()), r.number()
	e.Proofs = r.fields()
	if args := r.field(); args != "" {
		e.Args = r.checked(args)
	}
	if flags&flagAnswered != 0 {
		e.Result = r.result()
	}
	if flags&flagUnanswered != 0 {
		e.Err = r.failure()
	}
	if !r.finished() {
		bad.cause = errors.New("envelope that is truncated or garbled")
		return nil, bad
	}
	return e, nil
}

// encodeReply returns a reply as a message. It sets the version if the reply has none.
func encodeReply(r registry.Reply) ([]byte, error) {
	if r.V == 0 {
		r.V = registry.EnvelopeVersion
	}
	flags := flag(flagDelivered, r.Delivered) | flag(flagRunning, r.Running) | flag(flagWake, r.Wake) |
		flag(flagResult, r.Result != nil) | flag(flagFailed, r.Err != nil)
	size := 64 + len(r.CallID) + len(r.Tenant) + len(r.Session) + len(r.Answer)
	if r.Result != nil {
		size += len(r.Result.Output) + r.Result.Structured.Len() + len(r.Result.Error) +
			registry.PartsSize(r.Result.Parts) + registry.ViolationsSize(r.Result.Violations)
	}
	b := append(make([]byte, 0, size), messageReply, byte(r.V), flags)
	for _, text := range []string{r.CallID, r.Tenant, r.Session, r.Answer} {
		b = appendField(b, text)
	}
	var err error
	if r.Result != nil {
		b, err = appendResult(b, r.Result)
	}
	if r.Err != nil && err == nil {
		b, err = appendError(b, r.Err)
	}
	return b, err
}

// decodeReply is the inverse of encodeReply, without the first byte.
func decodeReply(text string) (*registry.Reply, error) {
	f := fieldReader{text: text}
	version, flags := f.byte(), f.byte()
	if version != registry.EnvelopeVersion && !f.broken {
		return nil, &badMessage{version: int(version), cause: fmt.Errorf("reply of unknown version %d", version)}
	}
	r := &registry.Reply{
		V:         int(version),
		Delivered: flags&flagDelivered != 0, Running: flags&flagRunning != 0, Wake: flags&flagWake != 0,
		CallID: f.field(), Tenant: f.field(), Session: f.field(), Answer: f.field(),
	}
	if flags&flagResult != 0 {
		r.Result = f.result()
	}
	if flags&flagFailed != 0 {
		r.Err = f.failure()
	}
	set := 0
	for _, is := range [...]bool{r.Result != nil, r.Err != nil, r.Delivered, r.Wake, r.Answer != ""} {
		if is {
			set++
		}
	}
	switch {
	case !f.finished():
		return nil, &badMessage{cause: errors.New("reply that is truncated or garbled")}
	case r.CallID == "":
		return nil, &badMessage{cause: errors.New("reply without a call id")}
	case set != 1:
		return nil, &badMessage{cause: errors.New("reply that is not one of result, error, receipt and wake-up")}
	}
	return r, nil
}

func appendResult(b []byte, r *registry.Result) ([]byte, error) {
	flags := flag(flagSuccess, r.Success) | flag(flagStructured, !r.Structured.IsZero()) |
		flag(flagWithheld, r.Withheld != nil) | flag(flagParts, len(r.Parts) > 0) |
		flag(flagURIs, slices.ContainsFunc(r.Parts, hasURI)) | flag(flagViolations, len(r.Violations) > 0)
	b = append(b, flags)
	b = appendField(b, r.Output)
	b = appendField(b, r.Error)
	if !r.Structured.IsZero() {
		b = appendField(b, r.Structured.Raw())
	}
	if len(r.Parts) > 0 {
		b = appendParts(b, r.Parts)
	}
	if flags&flagURIs != 0 {
		for i := range r.Parts {
			b = appendField(b, r.Parts[i].URI)
		}
	}
	if flags&flagViolations != 0 {
		text, err := json.Marshal(r.Violations)
		if err != nil {
			return b, err
		}
		b = appendField(b, text)
	}
	if r.Withheld == nil {
		return b, nil
	}
	return appendError(b, r.Withheld)
}

func hasURI(p registry.Part) bool { return p.URI != "" }

func appendParts(b []byte, parts []registry.Part) []byte {
	b = binary.AppendUvarint(b, uint64(len(parts)))
	for i := range parts {
		p := &parts[i]
		for _, text := range []string{string(p.Type), p.MIMEType, p.Name, p.URL} {
			b = appendField(b, text)
		}
		b = appendField(b, p.Data)
		b = binary.AppendVarint(b, p.Size)
	}
	return b
}

func appendError(b []byte, e *registry.Error) ([]byte, error) {
	text, err := json.Marshal(e)
	return appendField(b, text), err
}

func flag(bit byte, set bool) byte {
	if set {
		return bit
	}
	return 0
}

func appendField[T ~string | ~[]byte](b []byte, field T) []byte {
	b = binary.AppendUvarint(b, uint64(len(field)))
	return append(b, field...)
}

package bus

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

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

// A message begins with one byte for its kind. The binary form of an envelope or a reply (codec.go), or other messages
// (below) follow; a probe has nothing else.
const (
	messageEnvelope = 'E'
	messageReply    = 'R'
	messageProbe    = 'P'
	messagePacket   = 'B'
)

// message is a decoded message. Exactly one field is set.
type message struct {
	envelope *registry.Envelope
	reply    *registry.Reply
	probe    bool
}

// decodeMessage decodes a message that is not a packet. Every error is a *badMessage.
func decodeMessage(text string) (message, error) {
	if text == "" {
		return message{}, &badMessage{cause: errors.New("empty message")}
	}
	switch text[0] {
	case messageProbe:
		return message{probe: true}, nil
	case messageEnvelope:
		e, err := decodeEnvelope(text[1:])
		return message{envelope: e}, err
	case messageReply:
		r, err := decodeReply(text[1:])
		return message{reply: r}, err
	default:
		return message{}, &badMessage{cause: fmt.Errorf("message of unknown kind %q", text[0])}
	}
}

// badMessage is the error for a message that cannot be decoded. If it was an envelope with a call, callID and replyTo
// name the call and the pod that waits for the reply.
type badMessage struct {
	callID  string
	replyTo string
	version int // zero if the content is wrong
	cause   error
}

func (e *badMessage) Error() string { return e.cause.Error() }

// refusal returns the reply to an envelope that cannot be decoded, nil if no pod waits for one.
func (e *badMessage) refusal() *registry.Reply {
	if e.callID == "" || e.replyTo == "" {
		return nil
	}
	text := "The pod that holds the device's connection could not read the call."
	if e.version != 0 {
		text = "The pods run versions that do not understand each other. Retry when the update is through."
	}
	return &registry.Reply{
		V: registry.EnvelopeVersion, CallID: e.callID,
		Err: registry.Errorf(registry.CodeInvalidRequest, "%s", text).With(registry.DispatchedNo),
	}
}

// Messages to one pod that leave at the same moment travel as one packet: a message that holds others, each prefixed
// with its length. Redis, and the client library at both ends, then handle one message instead of hundreds. That was
// most of what a call cost Redis under load. A packet holds no packets. A message that travels alone is sent unpacked.
const (
	maxPacked = 8 << 10  // bytes; a longer message travels alone: copying it costs as much as a packet saves
	maxPacket = 64 << 10 // bytes; so that many packets can be read at once
)

// outgoing is a message on its way to a pod.
type outgoing interface {
	to() string      // the pod
	message() []byte // encoded
}

// byPod groups messages by their target pod. Messages to one pod keep their order.
func byPod[T outgoing](all []T) map[string][]T {
	sorted := make(map[string][]T)
	first := all[0].to()
	if !slices.ContainsFunc(all, func(o T) bool { return o.to() != first }) {
		sorted[first] = all
		return sorted
	}
	for _, o := range all {
		sorted[o.to()] = append(sorted[o.to()], o)
	}
	return sorted
}

// packet is a group of messages that travel as one.
type packet[T outgoing] struct {
	items   []T
	payload []byte
}

// packets packs the messages for one pod, in order.
func packets[T outgoing](items []T) []packet[T] {
	var packed []packet[T]
	for len(items) > 0 {
		n, size := 1, len(items[0].message())
		if size <= maxPacked {
			for _, o := range items[1:] {
				next := len(o.message())
				if next > maxPacked || size+next > maxPacket {
					break
				}
				n, size = n+1, size+next
			}
		}
		packed = append(packed, pack(items[:n], size))
		items = items[n:]
	}
	return packed
}

func pack[T outgoing](items []T, size int) packet[T] {
	if len(items) == 1 {
		return packet[T]{items: items, payload: items[0].message()}
	}
	b := make([]byte, 1, 1+size+len(items)*binary.MaxVarintLen16)
	b[0] = messagePacket
	for _, o := range items {
		b = appendField(b, o.message())
	}
	return packet[T]{items: items, payload: b}
}

var errPacket = errors.New("packet that is truncated or garbled")

// unpack calls each with every message of a packet. If the packet is broken, the messages before that place still
// count. Each message of a packet is a copy, so that a long call does not keep its neighbors in memory.
func unpack(payload string, each func(string)) error {
	if payload == "" || payload[0] != messagePacket {
		each(payload)
		return nil
	}
	r := fieldReader{text: payload[1:]}
	for r.text != "" {
		m := r.field()
		if r.broken {
			return errPacket
		}
		each(strings.Clone(m))
	}
	return nil
}

// dispatched returns whether Redis may have run the command that failed with err. It is DispatchedNo only if the error
// certainly happened before anything was written, or if the server itself rejected the command.
func dispatched(err error) registry.Dispatched {
	var refused redis.Error
	var op *net.OpError
	switch {
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed):
		return registry.DispatchedNo
	case errors.As(err, &op) && op.Op == "dial":
		return registry.DispatchedNo
	case errors.As(err, &refused):
		return registry.DispatchedNo
	default:
		return registry.DispatchedUnknown
	}
}

package bus

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// Envelopes and replies have one binary form: a version, flags, and fields prefixed with their length. An error inside
// is the JSON of registry.Error, because errors are rare and have many parts.
//
// JSON would need no code here, but is slower. With arguments and output of 100 bytes each, encoding and decoding the
// envelope and the reply of one call took 14 µs as JSON; this takes 2.7 µs (410 and 55 µs with 10 KB). A whole call
// between two pods, under load, takes 11 µs of processor time (docs/decisions/0011-batches.md). BenchmarkCodec repeats
// the measurement of this form.

// coder writes the fields of a message, or reads them, so that a form is described once for both directions. It changes
// nothing of what it writes. After a malformed field it is broken, and fields read as empty. The strings that it reads
// share the memory of the message.
type coder struct {
	writing bool
	bytes   []byte // written
	err     error  // of a value that cannot be JSON

	text   string // not read yet
	broken bool
}

// newWriter returns a coder that writes a message of a kind and of about size bytes.
func newWriter(kind byte, size int) coder {
	return coder{writing: true, bytes: append(make([]byte, 0, size), kind)}
}

// envelope codes an envelope. The call and the pod that waits for a reply are at the same place in every version, so
// that an unknown version can be rejected with a reply.
func (c *coder) envelope(e *registry.Envelope) {
	answered, unanswered, ordered := e.Result != nil, e.Err != nil, e.Order != registry.OrderNone
	e.V = int(c.byte(byte(e.V)))
	c.flags(&e.Durable, &e.Exact, &answered, &unanswered, &ordered, &e.Approved)
	c.texts(&e.CallID, &e.ReplyTo)
	if e.V != registry.EnvelopeVersion {
		return
	}
	attributes := int64(e.Attributes)
	c.texts((*string)(&e.Kind), &e.Tenant, &e.Session, &e.Tool, &e.Spec)
	c.texts(remark(e))
	c.numbers(&e.Generation, &e.TimeoutMS, &attributes, &e.Attempt)
	e.Attributes = uint64(attributes)
	c.proofs(e)
	c.json(&e.Args)
	if answered {
		c.result(made(c, &e.Result))
	}
	if unanswered {
		c.marshalled(made(c, &e.Err))
	}
	if ordered {
		c.texts((*string)(&e.Order))
		c.numbers(&e.AgeMS)
	}
}

// proofs codes the proofs of a device. A call has none, and the identity of its caller in their place: pods of releases
// without shares of a session's calls ignore it there.
func (c *coder) proofs(e *registry.Envelope) {
	all, call := e.Proofs, e.Kind == registry.EnvelopeCall
	if call && c.writing {
		if all = nil; e.Identity != "" {
			all = []string{e.Identity}
		}
	}
	list(c, &all, len(c.text)) // each takes at least one byte
	for i := range all {
		c.texts(&all[i])
	}
	switch {
	case c.writing:
	case !call:
		e.Proofs = all
	case len(all) > 0:
		e.Identity = all[0]
	}
}

// remark returns the text that has one place in all envelopes: the trace of a call or an errand, which have no reason.
// Pods of releases without traces ignore it there.
func remark(e *registry.Envelope) *string {
	if e.Kind == registry.EnvelopeCall || e.Kind == registry.EnvelopeErrand {
		return &e.Trace
	}
	return &e.Reason
}

func (c *coder) reply(r *registry.Reply) {
	answered, failed := r.Result != nil, r.Err != nil
	r.V = int(c.byte(byte(r.V)))
	c.flags(&r.Delivered, &r.Running, &r.Wake, &answered, &failed, &r.InOrder)
	if r.V != registry.EnvelopeVersion {
		return
	}
	c.texts(&r.CallID, &r.Tenant, &r.Session, &r.Answer)
	if answered {
		c.result(made(c, &r.Result))
	}
	if failed {
		c.marshalled(made(c, &r.Err))
	}
}

func (c *coder) result(r *registry.Result) {
	structured, withheld, parts := !r.Structured.IsZero(), r.Withheld != nil, len(r.Parts) > 0
	uris := slices.ContainsFunc(r.Parts, func(p registry.Part) bool { return p.URI != "" })
	violations := len(r.Violations) > 0
	c.flags(&r.Success, &structured, &withheld, &parts, &uris, &violations)
	c.texts(&r.Output, &r.Error)
	if structured {
		c.json(&r.Structured)
	}
	if parts {
		list(c, &r.Parts, registry.MaxParts)
	}
	for i := range r.Parts {
		p := &r.Parts[i]
		c.texts((*string)(&p.Type), &p.MIMEType, &p.Name, &p.URL)
		c.data(&p.Data)
		c.numbers(&p.Size)
	}
	for i := range r.Parts {
		if uris {
			c.texts(&r.Parts[i].URI)
		}
	}
	if violations {
		c.marshalled(&r.Violations)
	}
	if withheld {
		c.marshalled(made(c, &r.Withheld))
	}
}

// made returns the value that a pointer leads to. A reader makes it.
func made[T any](c *coder, p **T) *T {
	if !c.writing {
		*p = new(T)
	}
	return *p
}

// list codes the length of a list. A reader makes the list, of at most that many elements.
func list[T any](c *coder, all *[]T, most int) {
	if c.writing {
		c.bytes = binary.AppendUvarint(c.bytes, uint64(len(*all)))
		return
	}
	n := c.uvarint()
	if n > uint64(most) {
		c.broken = true
	}
	if n > 0 && !c.broken {
		*all = make([]T, n)
	}
}

func (c *coder) byte(b byte) byte {
	if c.writing {
		c.bytes = append(c.bytes, b)
		return b
	}
	if c.text == "" {
		c.broken = true
		return 0
	}
	b, c.text = c.text[0], c.text[1:]
	return b
}

// flags codes up to eight flags as the bits of one byte, the first as the lowest.
func (c *coder) flags(all ...*bool) {
	bits := byte(0)
	for i, set := range all {
		if c.writing && *set {
			bits |= 1 << i
		}
	}
	bits = c.byte(bits)
	for i, set := range all {
		if !c.writing {
			*set = bits&(1<<i) != 0
		}
	}
}

func (c *coder) texts(all ...*string) {
	for _, text := range all {
		if c.writing {
			c.bytes = appendField(c.bytes, *text)
		} else {
			*text = c.field()
		}
	}
}

func (c *coder) data(p *[]byte) {
	if c.writing {
		c.bytes = appendField(c.bytes, *p)
	} else if text := c.field(); text != "" {
		*p = []byte(text)
	}
}

// numbers codes signed numbers, zigzag-encoded.
func (c *coder) numbers(all ...*int64) {
	for _, n := range all {
		if c.writing {
			c.bytes = binary.AppendVarint(c.bytes, *n)
		} else {
			v := c.uvarint()
			*n = int64(v>>1) ^ -int64(v&1)
		}
	}
}

// json codes a value of a device or a caller. Where it is read, it enters the pod.
func (c *coder) json(v *registry.JSON) {
	if c.writing {
		c.bytes = appendField(c.bytes, v.Raw())
	} else if text := c.field(); text != "" {
		var err error
		*v, err = registry.ParseJSON([]byte(text))
		c.broken = c.broken || err != nil
	}
}

// marshalled codes a value by encoding/json.
func (c *coder) marshalled(v any) {
	if !c.writing {
		c.broken = json.Unmarshal([]byte(c.field()), v) != nil || c.broken
		return
	}
	text, err := json.Marshal(v)
	c.bytes, c.err = appendField(c.bytes, text), errors.Join(c.err, err)
}

func (c *coder) uvarint() uint64 {
	var v uint64
	for shift := 0; shift < 64; shift += 7 {
		b := c.byte(0)
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
	c.broken = true
	return 0
}

func (c *coder) field() string {
	n := c.uvarint()
	if c.broken || n > uint64(len(c.text)) {
		c.broken = true
		return ""
	}
	field := c.text[:n]
	c.text = c.text[n:]
	return field
}

// finished reports whether the whole message was read without an error.
func (c *coder) finished() bool { return !c.broken && c.text == "" }

func appendField[T ~string | ~[]byte](b []byte, field T) []byte {
	b = binary.AppendUvarint(b, uint64(len(field)))
	return append(b, field...)
}

// encodeEnvelope returns an envelope as a message. It sets the version if the envelope has none.
func encodeEnvelope(e registry.Envelope) ([]byte, error) {
	e.V = cmp.Or(e.V, registry.EnvelopeVersion)
	c := newWriter(messageEnvelope, 64+e.Args.Len()+len(e.CallID)+len(e.ReplyTo)+len(e.Tenant)+len(e.Session)+
		len(e.Tool)+len(e.Spec)+len(e.Reason)+len(e.Trace)+len(e.Identity))
	c.envelope(&e)
	return c.bytes, c.err
}

// keptMessage is the maximum length of a message, in bytes, that its ids may keep in memory.
const keptMessage = 1 << 10

// decodeEnvelope is the inverse of encodeEnvelope, without the first byte.
func decodeEnvelope(text string) (*registry.Envelope, error) {
	c, e := coder{text: text}, new(registry.Envelope)
	c.envelope(e)
	if len(text) > keptMessage { // the ids live while the device works, and must not keep the arguments
		e.CallID, e.ReplyTo = strings.Clone(e.CallID), strings.Clone(e.ReplyTo)
	}
	switch {
	case e.V != registry.EnvelopeVersion && !c.broken:
		return nil, &badMessage{
			callID: e.CallID, replyTo: e.ReplyTo, version: e.V,
			cause: fmt.Errorf("envelope of version %d, only %d is known", e.V, registry.EnvelopeVersion),
		}
	case !c.finished():
		cause := errors.New("envelope that is truncated or garbled")
		return nil, &badMessage{callID: e.CallID, replyTo: e.ReplyTo, cause: cause}
	}
	return e, nil
}

// encodeReply returns a reply as a message. It sets the version if the reply has none.
func encodeReply(r registry.Reply) ([]byte, error) {
	r.V = cmp.Or(r.V, registry.EnvelopeVersion)
	size := 64 + len(r.CallID) + len(r.Tenant) + len(r.Session) + len(r.Answer)
	if r.Result != nil {
		size += len(r.Result.Output) + r.Result.Structured.Len() + len(r.Result.Error) +
			registry.PartsSize(r.Result.Parts) + registry.ViolationsSize(r.Result.Violations)
	}
	c := newWriter(messageReply, size)
	c.reply(&r)
	return c.bytes, c.err
}

// decodeReply is the inverse of encodeReply, without the first byte.
func decodeReply(text string) (*registry.Reply, error) {
	c, r := coder{text: text}, new(registry.Reply)
	c.reply(r)
	set := 0
	for _, is := range [...]bool{r.Result != nil, r.Err != nil, r.InOrder, r.Delivered, r.Wake, r.Answer != ""} {
		if is {
			set++
		}
	}
	switch {
	case r.V != registry.EnvelopeVersion && !c.broken:
		return nil, &badMessage{version: r.V, cause: fmt.Errorf("reply of unknown version %d", r.V)}
	case !c.finished():
		return nil, &badMessage{cause: errors.New("reply that is truncated or garbled")}
	case r.CallID == "":
		return nil, &badMessage{cause: errors.New("reply without a call id")}
	case set != 1:
		return nil, &badMessage{cause: errors.New("reply that is not one of result, error, receipt and wake-up")}
	}
	return r, nil
}

// A message begins with one byte for its kind. The binary form of an envelope or a reply, or other messages
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
	version int // zero if the content is wrong, and not the version
	cause   error
}

func (e *badMessage) Error() string { return e.cause.Error() }

// refusal returns the reply to an envelope that cannot be decoded, nil if no pod waits for one.
func (e *badMessage) refusal() *registry.Reply {
	if e.callID == "" || e.replyTo == "" {
		return nil
	}
	err := registry.Errorf(registry.CodeInvalidRequest,
		"The pod that holds the device's connection could not read the call.")
	if e.version != 0 {
		err = registry.Newer(string(redisconn.FormMessage), strconv.Itoa(e.version)) // another pod may have it soon
	}
	return &registry.Reply{V: registry.EnvelopeVersion, CallID: e.callID, Err: err.With(registry.DispatchedNo)}
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

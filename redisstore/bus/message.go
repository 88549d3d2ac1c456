package bus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/registry"
)

// A message begins with one byte for its kind. The binary form of an envelope or a reply (codec.go), or other messages
// (message.go) follow; a probe has nothing else.
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

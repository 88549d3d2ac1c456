package bus

import (
	"errors"
	"fmt"

	"github.com/farhand/farhand/registry"
)

// A message is one byte that says what it is, followed by the binary form of an envelope or a reply (codec.go), by
// other messages (packet.go), or, for a probe, by nothing.
const (
	messageEnvelope = 'E'
	messageReply    = 'R'
	messageProbe    = 'P'
	messagePacket   = 'B'
)

// message is a decoded one. Exactly one field is set.
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

// badMessage is the error for a message that cannot be understood. If it was an envelope with a call, callID and
// replyTo say who waits for a reply.
type badMessage struct {
	callID  string
	replyTo string
	version int // zero when it is the content that is wrong
	cause   error
}

func (e *badMessage) Error() string { return e.cause.Error() }

// refusal returns the reply to an envelope that cannot be understood, nil when nobody waits for one.
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

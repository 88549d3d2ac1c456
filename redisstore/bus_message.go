package redisstore

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/farhand/farhand/registry"
)

// A message between pods is one byte that says what it is, followed by JSON, by the binary form of a call or an answer,
// by other messages, or, for a probe, by nothing.
const (
	messageCall     = 'C'
	messageAnswer   = 'A'
	messageEnvelope = 'E'
	messageReply    = 'R'
	messageProbe    = 'P'
	messageBundle   = 'B'
)

// message is a decoded one. Exactly one field is set.
type message struct {
	envelope *registry.Envelope
	reply    *registry.Reply
	probe    bool
}

// badMessage is the error for a message that cannot be understood. If it was a call, callID and replyTo say whom to
// tell.
type badMessage struct {
	callID  string
	replyTo string
	version int // zero when it is the content that is wrong
	cause   error
}

func (e *badMessage) Error() string { return e.cause.Error() }

func encodeEnvelope(e registry.Envelope) ([]byte, error) {
	if e.V == 0 {
		e.V = registry.EnvelopeVersion
	}
	if e.Kind == registry.EnvelopeCall && len(e.Args) > 0 {
		return encodeCall(e)
	}
	return encodeMessage(messageEnvelope, e)
}

func encodeReply(r registry.Reply) ([]byte, error) {
	if r.V == 0 {
		r.V = registry.EnvelopeVersion
	}
	if r.Result != nil && r.CallID != "" {
		return encodeAnswer(r)
	}
	return encodeMessage(messageReply, r)
}

func encodeMessage(kind byte, v any) ([]byte, error) {
	text, err := encodeJSON(v)
	if err != nil {
		return nil, err
	}
	return append([]byte{kind}, text...), nil
}

// decodeMessage reads a message. Every error is a *badMessage.
func decodeMessage(text string) (message, error) {
	if text == "" {
		return message{}, &badMessage{cause: errors.New("empty message")}
	}
	switch text[0] {
	case messageProbe:
		return message{probe: true}, nil
	case messageCall:
		e, err := decodeCall(text[1:])
		return message{envelope: e}, err
	case messageAnswer:
		r, err := decodeAnswer(text[1:])
		return message{reply: r}, err
	case messageEnvelope:
		e, err := decodeEnvelope([]byte(text[1:]))
		return message{envelope: e}, err
	case messageReply:
		r, err := decodeReply([]byte(text[1:]))
		return message{reply: r}, err
	default:
		return message{}, &badMessage{cause: fmt.Errorf("message of unknown kind %q", text[0])}
	}
}

func decodeEnvelope(body []byte) (*registry.Envelope, error) {
	var e registry.Envelope
	if err := json.Unmarshal(body, &e); err != nil {
		return nil, salvage(body, err)
	}
	if e.V != registry.EnvelopeVersion {
		return nil, &badMessage{
			callID: e.CallID, replyTo: e.ReplyTo, version: e.V,
			cause: fmt.Errorf("envelope of version %d, only %d is known", e.V, registry.EnvelopeVersion),
		}
	}
	return &e, nil
}

// salvage finds out whom to tell about an envelope that does not decode.
func salvage(body []byte, cause error) *badMessage {
	bad := &badMessage{cause: fmt.Errorf("envelope: %w", cause)}
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) == nil {
		_ = json.Unmarshal(fields["call"], &bad.callID)
		_ = json.Unmarshal(fields["reply_to"], &bad.replyTo)
	}
	return bad
}

func decodeReply(body []byte) (*registry.Reply, error) {
	var r registry.Reply
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, &badMessage{cause: fmt.Errorf("reply: %w", err)}
	}
	set := 0
	for _, is := range []bool{r.Result != nil, r.Err != nil, r.Delivered, r.Wake, r.Answer != ""} {
		if is {
			set++
		}
	}
	switch {
	case r.V != registry.EnvelopeVersion:
		return nil, &badMessage{version: r.V, cause: fmt.Errorf("reply of unknown version %d", r.V)}
	case r.CallID == "":
		return nil, &badMessage{cause: errors.New("reply without a call id")}
	case set != 1:
		return nil, &badMessage{cause: errors.New("reply that is not one of result, error, receipt and wake-up")}
	}
	return &r, nil
}

// refusal is the answer to a call that cannot be understood, nil when there is nobody to tell.
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

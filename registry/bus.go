package registry

import (
	"context"
)

// EnvelopeVersion is the version of the messages between pods. A pod answers a version it does not know with an
// error instead of guessing: two releases may run side by side during a deploy.
const EnvelopeVersion = 1

// EnvelopeKind says what an Envelope asks for.
type EnvelopeKind string

// The kinds of envelopes.
const (
	EnvelopeCall   EnvelopeKind = "call"   // deliver a call to a session's socket
	EnvelopeCancel EnvelopeKind = "cancel" // give a call up: to the pod that delivered it, or the one that was asked
	EnvelopeAnswer EnvelopeKind = "answer" // a device that moved answers a call of its former pod
	EnvelopeEvict  EnvelopeKind = "evict"  // the session was claimed by another connection, or kicked
	EnvelopePing   EnvelopeKind = "ping"   // ask a session's device for a sign of life; the reply is a receipt, or an error
	EnvelopeAbort  EnvelopeKind = "abort"  // whoever runs a turn of this conversation should end it
)

// Envelope is a message to the pod that owns a session.
type Envelope struct {
	V          int          `json:"v"`
	Kind       EnvelopeKind `json:"kind"`
	Tenant     string       `json:"tenant"`
	Session    string       `json:"session"`
	Generation int64        `json:"gen,omitempty"`
	// Exact says that only the claim of that generation is meant, as the caller asked for more than the session's id;
	// else a newer one will do.
	Exact  bool   `json:"exact,omitempty"`
	CallID string `json:"call,omitempty"`
	Tool   string `json:"tool,omitempty"`
	Args   JSON   `json:"args,omitzero"`
	// TimeoutMS is what is left of the caller's deadline. A duration, because clocks of two machines disagree.
	TimeoutMS int64  `json:"timeout_ms,omitempty"`
	ReplyTo   string `json:"reply_to,omitempty"` // the pod that waits; with EnvelopeAnswer: to be told what became of it
	// Durable says that the call has a record, which the owner claims before it delivers and settles before it replies.
	Durable bool    `json:"durable,omitempty"`
	Result  *Result `json:"result,omitempty"` // with EnvelopeAnswer
	// Proofs, with EnvelopeAnswer, say whose calls the device may answer.
	Proofs []string `json:"proofs,omitempty"`
	Reason string   `json:"reason,omitempty"` // with EnvelopeEvict: replaced or kicked; with EnvelopeCancel: for the device
}

// Key returns the session the envelope is about.
func (e Envelope) Key() Key { return Key{Tenant: e.Tenant, Session: e.Session} }

// Reply travels back to the pod that waits for a call. Exactly one of Result, Err, Delivered, Wake and Answer is set.
type Reply struct {
	V         int     `json:"v"`
	CallID    string  `json:"call"`
	Result    *Result `json:"result,omitempty"`
	Tenant    string  `json:"tenant,omitempty"`  // with Result: whose answer it is, should nobody wait any more
	Session   string  `json:"session,omitempty"` // with Result
	Err       *Error  `json:"err,omitempty"`
	Delivered bool    `json:"delivered,omitempty"` // a receipt: the call was written to the socket, the answer is not here yet
	Running   bool    `json:"running,omitempty"`   // with Delivered: the device said that it has begun
	Wake      bool    `json:"wake,omitempty"`      // the record of a call this pod watches is final
	Answer    string  `json:"answer,omitempty"`    // what has become of an answer this pod passed on
}

// BusHandler receives what a pod is sent. Its methods are called from the bus's own goroutines and must not block:
// one slow session may never hold up another.
type BusHandler interface {
	HandleEnvelope(Envelope)
	HandleReply(Reply)

	// HandleGap is called when receiving works again after messages may have been missed.
	HandleGap()
}

// Bus carries messages between pods. Any can be lost. An envelope is not delivered twice. A reply may be, and after a
// later one, when the bus could not find out what became of it; but never one whose error says that nothing was
// dispatched, because its caller may then ask again under the same id. Otherwise order is kept between two pods.
type Bus interface {
	// Listen starts receiving for pod and returns when messages are sure to arrive. It is called once.
	Listen(ctx context.Context, pod string, h BusHandler) error

	// Send hands an envelope to pod. ErrNoReceiver means nobody listens there, so nothing was delivered; a nil error
	// means somebody was listening, not that the message was handled. Any other error is an *Error whose Dispatched
	// tells whether the message can have left.
	Send(ctx context.Context, pod string, e Envelope) error

	// SendAsync hands an envelope to pod like Send, but does not wait. It calls done.Sent with what Send would have
	// returned, once, before it returns or later from a goroutine of the bus, unless the envelope is cancelled before.
	// An error means that the envelope was not handed over, and done is not called. An envelope that is sent by itself
	// is bound by ctx.
	SendAsync(ctx context.Context, pod string, e Envelope, done SendCallback) (PendingSend, error)

	// Reply queues an answer for pod and returns at once; an error means it was not queued. An answer that cannot
	// be delivered later, for some seconds, is counted and logged, and its caller times out.
	Reply(pod string, r Reply) error

	// Healthy returns nil while messages to this pod are arriving, and the reason otherwise.
	Healthy() error

	// Close stops receiving, delivers what is queued within ctx, and waits for the bus's goroutines.
	Close(ctx context.Context) error
}

// SendCallback is notified of what became of an envelope. Sent must not block.
type SendCallback interface {
	Sent(err error)
}

// PendingSend is an envelope that was handed to the bus with SendAsync.
type PendingSend interface {
	// Cancel takes the envelope back if it has not been sent. It reports whether it did; then Sent is not called.
	Cancel() bool
}

// ErrNoReceiver is the error for an envelope to a pod where nobody listens.
var ErrNoReceiver = &Error{
	Code: CodeNotConnected, Message: "No pod is listening for this session.", Dispatched: DispatchedNo,
}

package registry

import (
	"context"
)

// EnvelopeVersion is the version of the messages between pods. A pod answers a version it does not know with an
// error instead of guessing: two releases may run side by side during a deploy.
const EnvelopeVersion = 2

// EnvelopeKind says what an Envelope asks for.
type EnvelopeKind string

// The kinds of envelopes.
const (
	EnvelopeCall     EnvelopeKind = "call"     // deliver a call to a session's socket
	EnvelopeCancel   EnvelopeKind = "cancel"   // cancel a call; goes to the pod that delivered it or the one that waits
	EnvelopeAnswer   EnvelopeKind = "answer"   // a device that moved answers a call of its former pod
	EnvelopeEvict    EnvelopeKind = "evict"    // the session was claimed by another connection, or kicked
	EnvelopePing     EnvelopeKind = "ping"     // ping a session's device; the reply is a receipt, or an error
	EnvelopeApproval EnvelopeKind = "approval" // show an approval, whose id is CallID, on a session's device
	EnvelopeAbort    EnvelopeKind = "abort"    // end the turn of this conversation, if it runs on the receiving pod
	EnvelopeErrand   EnvelopeKind = "errand"   // run a tool of the gateway: Args is an Errand, CallID the exchange's
	EnvelopeErased   EnvelopeKind = "erased"   // drop what is kept of this conversation's earlier generations
)

// Envelope is a message to the pod that owns a session.
type Envelope struct {
	V          int          `json:"v"`
	Kind       EnvelopeKind `json:"kind"`
	Tenant     string       `json:"tenant"`
	Session    string       `json:"session"`
	Generation int64        `json:"gen,omitempty"`
	// Exact says that only the claim of that generation may take the call, because the caller asked for more than the
	// session's id, or the call was decided on what was remembered of the session. Otherwise a newer claim may take it,
	// too.
	Exact  bool   `json:"exact,omitempty"`
	CallID string `json:"call,omitempty"`
	Tool   string `json:"tool,omitempty"`
	// Spec is the hash of the definition that the arguments were checked against, and Attributes the digest of the
	// attributes that the call was decided on, zero if they do not matter. The pod that holds the socket refuses the
	// call if its own are others (CodeStaleRoute). Attempt counts how often that has happened.
	Spec       string `json:"spec,omitempty"`
	Attributes uint64 `json:"attributes,omitempty"`
	Attempt    int64  `json:"attempt,omitempty"`
	Args       JSON   `json:"args,omitzero"`
	// TimeoutMS is the time until the caller's deadline. It is a duration, because clocks of two machines disagree.
	TimeoutMS int64  `json:"timeout_ms,omitempty"`
	ReplyTo   string `json:"reply_to,omitempty"` // the pod that waits for the reply
	// Durable says that the call has a record. The owner claims it before it delivers, and completes it before it
	// replies.
	Durable bool    `json:"durable,omitempty"`
	Result  *Result `json:"result,omitempty"` // with EnvelopeAnswer
	Err     *Error  `json:"err,omitempty"`    // with EnvelopeAnswer, in place of Result: the call gets no answer
	// Proofs, with EnvelopeAnswer, are those of the device; they decide which calls it may answer.
	Proofs []string `json:"proofs,omitempty"`
	// Reason is replaced or kicked with EnvelopeEvict, and a text for the device with EnvelopeCancel.
	Reason string `json:"reason,omitempty"`
}

// Key returns the session the envelope is about.
func (e Envelope) Key() Key { return Key{Tenant: e.Tenant, Session: e.Session} }

// Reply travels back to the pod that waits for a call. Exactly one of Result, Err, Delivered, Wake and Answer is set.
type Reply struct {
	V         int     `json:"v"`
	CallID    string  `json:"call"`
	Result    *Result `json:"result,omitempty"`
	Tenant    string  `json:"tenant,omitempty"`  // with Result: the tenant of the call, should nobody wait any more
	Session   string  `json:"session,omitempty"` // with Result
	Err       *Error  `json:"err,omitempty"`
	Delivered bool    `json:"delivered,omitempty"` // a receipt: the call was written to the socket
	Running   bool    `json:"running,omitempty"`   // with Delivered: the device said that it has begun
	Wake      bool    `json:"wake,omitempty"`      // the record of a call this pod watches is final
	Answer    string  `json:"answer,omitempty"`    // the verdict on an answer that this pod forwarded
}

// BusHandler receives the messages to a pod. The bus calls its methods from its own goroutines, and they must not
// block: one slow session must never hold up another.
type BusHandler interface {
	HandleEnvelope(Envelope)
	HandleReply(Reply)

	// HandleGap is called when the bus receives again after it may have missed messages.
	HandleGap()
}

// Bus carries messages between pods. Any message can be lost. An envelope is never delivered twice. A reply may be
// delivered twice, the second time after later replies, if the bus could not find out whether the first attempt
// arrived. A reply whose error says that nothing was dispatched is never delivered twice, because its caller may call
// again under the same id. Otherwise order is kept between two pods.
type Bus interface {
	// Listen starts receiving for pod and returns when messages are sure to arrive. It is called once.
	Listen(ctx context.Context, pod string, h BusHandler) error

	// Send hands an envelope to pod. ErrNoReceiver means that nobody listens there, so nothing was delivered. A nil
	// error means that somebody was listening, not that the message was handled. Any other error is an *Error whose
	// Dispatched says whether the message can have been sent.
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

// SendCallback is told whether an envelope was sent. Sent must not block.
type SendCallback interface {
	Sent(err error)
}

// PendingSend is an envelope that was handed to the bus with SendAsync.
type PendingSend interface {
	// Cancel takes the envelope back if it has not been sent. It reports whether it did; if so, Sent is not called.
	Cancel() bool
}

// ErrNoReceiver is the error for an envelope to a pod where nobody listens.
var ErrNoReceiver = &Error{
	Code: CodeNotConnected, Message: "No pod is listening for this session.", Dispatched: DispatchedNo,
}

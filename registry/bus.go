package registry

import (
	"context"
)

// EnvelopeVersion is the version of messages between pods. A pod rejects unknown versions with an error instead of
// guessing: two releases may run side by side during a deploy.
const EnvelopeVersion = 2

// EnvelopeKind is the request of an Envelope.
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
	EnvelopeErased   EnvelopeKind = "erased"   // drop cached data of this conversation's earlier generations
	EnvelopeQueue    EnvelopeKind = "queue"    // calls wait for the session's device
	EnvelopeSummary  EnvelopeKind = "summary"  // report how the receiving pod is; CallID is the question's
)

// Envelope is a message to the pod that owns a session.
type Envelope struct {
	V          int          `json:"v"`
	Kind       EnvelopeKind `json:"kind"`
	Tenant     string       `json:"tenant"`
	Session    string       `json:"session"`
	Generation int64        `json:"gen,omitempty"`
	// Exact says that only the claim of that generation may take the call. It is set if the caller asked for more than
	// the session's id, or if the call was decided on a cached session. Otherwise a newer claim may also take it.
	Exact  bool   `json:"exact,omitempty"`
	CallID string `json:"call,omitempty"`
	Tool   string `json:"tool,omitempty"`
	// Spec is the hash of the definition that the arguments were checked against. Attributes is the digest of the
	// attributes that the decision used, zero if unused. If either differs on the pod that holds the socket, it rejects
	// the call with CodeStaleRoute. Attempt counts these rejections.
	Spec       string `json:"spec,omitempty"`
	Attributes uint64 `json:"attributes,omitempty"`
	Attempt    int64  `json:"attempt,omitempty"`
	Args       JSON   `json:"args,omitzero"`
	// Approved is Call.Approved. Pods of earlier releases ignore it: then the device asks.
	Approved bool `json:"approved,omitempty"`
	// UserID, with EnvelopeCall, is the caller's user, whose share of FARHAND_CALL_BYTES the log of the call spends
	// from.
	UserID string `json:"user,omitempty"`
	// TimeoutMS is the time until the caller's deadline. It is a duration, because clocks of two machines disagree.
	TimeoutMS int64  `json:"timeout_ms,omitempty"`
	ReplyTo   string `json:"reply_to,omitempty"` // the pod that waits for the reply
	// Order is Call.Order. AgeMS is how long ago the call was accepted, if an earlier attempt stood in a line.
	Order Order `json:"order,omitempty"`
	AgeMS int64 `json:"age_ms,omitempty"`
	// Durable says that the call has a record. The owner claims the record before it delivers the call, and completes
	// the record before it replies.
	Durable bool    `json:"durable,omitempty"`
	Result  *Result `json:"result,omitempty"` // with EnvelopeAnswer
	Err     *Error  `json:"err,omitempty"`    // with EnvelopeAnswer, instead of Result: the call gets no answer
	// Proofs, with EnvelopeAnswer, are the device's proofs. They decide which calls it may answer.
	Proofs []string `json:"proofs,omitempty"`
	// Reason is replaced or kicked with EnvelopeEvict, and a text for the device with EnvelopeCancel.
	Reason string `json:"reason,omitempty"`
	// Trace, with EnvelopeCall and EnvelopeErrand, is the trace of the call, as trace.Context returns it; empty: none.
	Trace string `json:"trace,omitempty"`
}

// Key returns the session the envelope is about.
func (e Envelope) Key() Key { return Key{Tenant: e.Tenant, Session: e.Session} }

// Reply travels back to the pod that waits for a call. Exactly one of Result, Err, InOrder, Delivered, Wake and
// Answer is set.
type Reply struct {
	V         int     `json:"v"`
	CallID    string  `json:"call"`
	Result    *Result `json:"result,omitempty"`
	Tenant    string  `json:"tenant,omitempty"`  // with Result: the call's tenant, if no caller waits any more
	Session   string  `json:"session,omitempty"` // with Result
	Err       *Error  `json:"err,omitempty"`
	InOrder   bool    `json:"lined,omitempty"`     // the call is queued in its order
	Delivered bool    `json:"delivered,omitempty"` // a receipt: the call was written to the socket
	Running   bool    `json:"running,omitempty"`   // with Delivered: the device reported the start
	Wake      bool    `json:"wake,omitempty"`      // the record of a call that this pod watches is final

	// Answer is the verdict on an answer that this pod forwarded, or the summary that it asked for.
	Answer string `json:"answer,omitempty"`

	// Owner is the tenant in whose share a result waits to be sent. It is not sent.
	Owner string `json:"-"`
}

// BusHandler receives a pod's messages. The bus calls its methods from its own goroutines. They must not block: a slow
// session must never delay another.
type BusHandler interface {
	HandleEnvelope(Envelope)
	HandleReply(Reply)

	// HandleGap is called when the bus receives again after it may have missed messages.
	HandleGap()
}

// Bus carries messages between pods. Any message can be lost. An envelope is delivered at most once. A reply may be
// delivered twice, the second time after later replies, if the bus could not find out whether the first attempt
// arrived. A reply with an error and DispatchedNo is never delivered twice, because its caller may retry under the same
// id. Otherwise order is kept between two pods, but a long result may be overtaken.
type Bus interface {
	// Listen starts receiving for pod and returns once messages are sure to arrive. It is called once.
	Listen(ctx context.Context, pod string, h BusHandler) error

	// Send sends an envelope to pod. ErrNoReceiver means that no pod listens there, so nothing was delivered. A nil
	// error means that a pod was listening, not that it handled the message. Any other error is an *Error whose
	// Dispatched says whether the message can have been sent.
	Send(ctx context.Context, pod string, e Envelope) error

	// SendAsync sends an envelope to pod like Send, but does not wait. It calls done.Sent once with the result of Send,
	// before it returns or later from a goroutine of the bus, unless the envelope is cancelled first. If SendAsync
	// returns an error, the envelope was not queued, and done is not called. ctx bounds the send only if the envelope
	// is sent by itself, not in a batch.
	SendAsync(ctx context.Context, pod string, e Envelope, done SendCallback) (PendingSend, error)

	// Reply queues an answer for pod and returns immediately. An error means that it was not queued. If a queued answer
	// cannot be delivered for some seconds, it is counted and logged, and its caller times out.
	Reply(pod string, r Reply) error

	// Healthy returns nil while this pod receives messages, and the reason otherwise.
	Healthy() error

	// Close stops receiving, delivers the queue within ctx, and waits for the bus's goroutines.
	Close(ctx context.Context) error
}

// SendCallback receives the result of SendAsync. Sent must not block.
type SendCallback interface {
	Sent(err error)
}

// PendingSend is an envelope queued with SendAsync.
type PendingSend interface {
	// Cancel removes an unsent envelope. It reports whether it did; if so, Sent is not called.
	Cancel() bool
}

// ErrNoReceiver is the error for an envelope to a pod that does not listen.
var ErrNoReceiver = &Error{
	Code: CodeNotConnected, Message: "No pod is listening for this session.", Dispatched: DispatchedNo,
}

// PodSummary is how a pod says it is.
type PodSummary struct {
	Pod     string
	Summary []byte // empty: the pod is live, and did not answer in time
}

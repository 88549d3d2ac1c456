package registrytest

import (
	"testing"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
)

// Inbox is a registry.BusHandler that records what a bus delivers.
type Inbox struct {
	Envelopes chan registry.Envelope
	Replies   chan registry.Reply
}

// NewInbox returns an inbox with space for more messages than a test sends.
func NewInbox() *Inbox {
	return &Inbox{Envelopes: make(chan registry.Envelope, 4096), Replies: make(chan registry.Reply, 4096)}
}

// HandleEnvelope implements registry.BusHandler.
func (i *Inbox) HandleEnvelope(e registry.Envelope) { i.Envelopes <- e }

// HandleReply implements registry.BusHandler.
func (i *Inbox) HandleReply(r registry.Reply) { i.Replies <- r }

// HandleGap implements registry.BusHandler.
func (i *Inbox) HandleGap() {}

// Eventually polls until ok returns true, for conditions without a channel. It fails the test after a timeout.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	testkit.Eventually(t, what, ok)
}

// Receive returns the next value of a channel. It fails the test after a timeout.
func Receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	return testkit.Receive(t, what, c)
}

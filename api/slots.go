package api

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/auth"
	"github.com/farhand/farhand/registry"
)

// slotRetry is when a client that found too many requests open should try again.
const slotRetry = 5 * time.Second

// Limits of requests that wait for the end of a call (wait_ms): of all callers, and of one. Each costs the pod about
// 75 KiB, most of it for its open connection.
const (
	maxWaiting       = 2000
	maxCallerWaiting = 1000
)

// slots bounds the requests of a kind that this pod holds open, and those of one caller. It is safe for concurrent use.
type slots struct {
	what      string // the kind, in the plural
	all, each int    // how many there may be

	mu       sync.Mutex
	open     int
	refused  int64
	byCaller map[slotCaller]int
}

// slotCaller is a user or, if the credentials name none, a credential, at an address, because many callers share a
// token. A user with many keys, or with a new JWT each minute, is one.
type slotCaller struct {
	tenant, user, credential string
	source                   netip.Prefix
}

// slotCallerOf returns an identity at an address.
func slotCallerOf(who auth.Identity, source netip.Prefix) slotCaller {
	by := slotCaller{tenant: who.Tenant, user: who.User, source: source}
	if by.user == "" {
		by.credential = who.Credential
	}
	return by
}

func newSlots(what string, all, each int) *slots {
	return &slots{what: what, all: all, each: each, byCaller: make(map[slotCaller]int)}
}

// enter counts one more request of a caller in, and returns how to count it out. The zero caller is not bounded by
// itself.
func (s *slots) enter(by slotCaller) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.open >= s.all:
		s.refused++
		return nil, tooMany("This pod holds as many " + s.what + " as it may. Retry after a moment.")
	case s.byCaller[by] >= s.each && by != (slotCaller{}):
		s.refused++
		return nil, tooMany("Too many " + s.what + " are open from this address. " +
			"Close some, or follow several things with one event stream.")
	}
	s.open++
	s.byCaller[by]++
	return func() { s.leave(by) }, nil
}

// count returns how many requests are open, and how many were refused.
func (s *slots) count() (open, refused int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(s.open), s.refused
}

func (s *slots) leave(by slotCaller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if s.byCaller[by]--; s.byCaller[by] == 0 {
		delete(s.byCaller, by)
	}
}

func tooMany(message string) error {
	return &registry.Error{Code: registry.CodeBusy, Message: message, RetryAfter: slotRetry}
}

// reserveStream counts one more event stream of a caller in, and returns how to count it out. It fails when there are
// too many, or when the pod is stopping.
func (h *handler) reserveStream(by slotCaller) (release func(), err error) {
	if h.isDraining() {
		return nil, draining()
	}
	return h.streams.enter(by)
}

// slotCaller returns who sent a request.
func (h *handler) slotCaller(c *gin.Context) slotCaller {
	return slotCallerOf(caller(c), h.Sources.Of(c.Request))
}

// maxReading is how many requests read much of the store at a time: thousands of lines of the audit log, or of rows of
// usage. Each takes memory and time of the processor that are bounded, but not small.
const maxReading = 4

// readMuch waits until a request may read much of the store. The caller must call done when it has read. The error is
// CodeBusy when ctx has ended.
func (h *handler) readMuch(ctx context.Context) (done func(), err error) {
	select {
	case h.reading <- struct{}{}:
		return func() { <-h.reading }, nil
	case <-ctx.Done():
		return nil, tooMany("Too many requests read the audit log or the usage on this pod. Retry after a moment.")
	}
}

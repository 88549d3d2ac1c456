package api

import (
	"net/netip"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/guard"
	"github.com/farhand/farhand/registry"
)

// streamRetry is when a client should try again that found too many streams open.
const streamRetry = 5 * time.Second

// streamSlots bounds the event streams of this pod, and those of one caller. It is safe for concurrent use.
type streamSlots struct {
	all, each int // how many there may be

	mu       sync.Mutex
	open     int
	byCaller map[streamCaller]int
}

// streamCaller is who asks from where: many share a token.
type streamCaller struct {
	who    guard.Identity
	source netip.Prefix
}

func newStreamSlots(all, each int) *streamSlots {
	return &streamSlots{all: all, each: each, byCaller: make(map[streamCaller]int)}
}

// take counts one more stream of a caller in, and returns how to count it out. The zero caller is not bounded by itself.
func (s *streamSlots) take(by streamCaller) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.open >= s.all:
		return nil, manyStreams("This pod serves as many event streams as it may. Retry after a moment.")
	case s.byCaller[by] >= s.each && by != (streamCaller{}):
		return nil, manyStreams("Too many event streams are open from this address. Close some, or follow several things with one of them.")
	}
	s.open++
	s.byCaller[by]++
	return func() { s.leave(by) }, nil
}

func (s *streamSlots) leave(by streamCaller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if s.byCaller[by]--; s.byCaller[by] == 0 {
		delete(s.byCaller, by)
	}
}

func manyStreams(message string) error {
	return &registry.Error{Code: registry.CodeBusy, Message: message, RetryAfter: streamRetry}
}

// reserveStream counts one more event stream in, and returns how to count it out. It fails when there are too many, or when
// the pod is stopping.
func (h *handler) reserveStream(c *gin.Context) (release func(), err error) {
	return h.reserveSlot(streamCaller{caller(c), h.Sources.Of(c.Request)})
}

// reserveTurn counts a streamed turn in, as reserveStream does. The backend of an app holds those of all its users.
func (h *handler) reserveTurn() (release func(), err error) { return h.reserveSlot(streamCaller{}) }

func (h *handler) reserveSlot(by streamCaller) (release func(), err error) {
	if h.Draining() {
		return nil, draining()
	}
	return h.streams.take(by)
}

package ws

import (
	"errors"
	"log/slog"
	"sync"

	"github.com/farhand/farhand/internal/share"
)

// unsentHolders are the connections whose outboxes have taken bytes of the pod's limit, by tenant. They may hold none
// any more. It is safe for concurrent use.
type unsentHolders struct {
	mu      sync.Mutex
	tenants map[string]map[*conn]struct{}
}

func (h *unsentHolders) add(c *conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := h.tenants[c.who.Tenant]
	if of == nil {
		if h.tenants == nil {
			h.tenants = make(map[string]map[*conn]struct{})
		}
		of = make(map[*conn]struct{})
		h.tenants[c.who.Tenant] = of
	}
	of[c] = struct{}{}
}

func (h *unsentHolders) remove(c *conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := h.tenants[c.who.Tenant]
	if delete(of, c); len(of) == 0 {
		delete(h.tenants, c.who.Tenant)
	}
}

func (h *unsentHolders) snapshot() (all []*conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, of := range h.tenants {
		for c := range of {
			all = append(all, c)
		}
	}
	return all
}

// heaviest returns the connection with most unsent bytes of those that met a bound with c: of its identity, of its
// tenant, or of the tenant that holds most. It returns nil if there is none.
func (h *unsentHolders) heaviest(c *conn, met share.Bound) (found *conn, most int) {
	sizes, sums := make(map[*conn]int), make(map[string]int)
	tenant := c.who.Tenant
	for _, other := range h.snapshot() {
		size, open := other.out.unsent()
		if size <= unsentLeft || !open {
			h.remove(other)
			continue
		}
		sizes[other] = size
		sums[other.who.Tenant] += size
		if met == share.Pod && sums[other.who.Tenant] > sums[tenant] {
			tenant = other.who.Tenant
		}
	}
	for other, size := range sizes {
		of := other.who.Tenant == tenant && (met != share.Identity || other.who.Owner() == c.who.Owner())
		if of && size > most {
			found, most = other, size
		}
	}
	return found, most
}

// holdUnsent implements outboxOwner.
func (c *conn) holdUnsent(n int) (*share.Grant, error) {
	grant, err := c.server.unsent.Try(owner(c.who, c.server.cfg.MaxUnsent), int64(n))
	if err == nil {
		c.server.holders.add(c)
	}
	return grant, err
}

// maxClosed is how many connections are closed at most for one frame.
const maxClosed = 8

// queue queues a frame by push. If the unsent bytes of others leave no room for it, the connection that holds most of
// them is closed as slow, and not this one.
func (c *conn) queue(frame []byte, push func() error) error {
	err := push()
	for range maxClosed {
		if !errors.Is(err, errOutboxesFull) || !c.makeRoom(len(frame)+frameOverhead) {
			break
		}
		err = push()
	}
	return sendError(err)
}

// makeRoom drops the frames of the connection that keeps n bytes of this one from being queued, and closes it. It
// returns false if that is this connection itself.
func (c *conn) makeRoom(n int) bool {
	s := c.server
	met := s.unsent.Lacks(owner(c.who, s.cfg.MaxUnsent), int64(n))
	if met == "" {
		return true
	}
	_, own := c.out.waiting()
	slow, held := s.holders.heaviest(c, met)
	if slow == nil || slow == c || held <= own+n {
		return false
	}
	slow.out.discard()
	slow.out.abandon() // the frame being written is freed when the socket is closed, a moment later
	s.addTask()        // this connection's own task is not done
	go func() {        // the caller may hold locks of its connection
		defer s.taskDone()
		slow.note(slog.LevelInfo, "closing a device", "close", CloseSlow.Code(), "reason", CloseSlow.Reason(),
			"unsent", held)
		slow.end(CloseSlow)
	}()
	return true
}

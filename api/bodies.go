package api

import (
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/sync/semaphore"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
)

const (
	// bodyWait is how long a request waits for room for its body, and bodyPart how many bytes of it must come within
	// stallGrace when others wait.
	bodyWait = 5 * time.Second
	bodyPart = 64 << 10

	// keyBody is where the context of a request keeps the room of its body.
	keyBody = "farhand.body"
)

// bodies bounds the bytes of longer request bodies that this pod holds: those that are arriving, and those whose requests,
// or the calls they began, have not ended. Small ones do not count, so that they never wait for long ones. It is safe for
// concurrent use.
type bodies struct {
	limit   int64
	room    *semaphore.Weighted
	refused atomic.Int64 // requests there was no room for

	mu       sync.Mutex
	arriving map[*heldBody]time.Time // since when no part has come
}

func newBodies(limit int64) *bodies {
	return &bodies{limit: limit, room: semaphore.NewWeighted(limit), arriving: make(map[*heldBody]time.Time)}
}

// heldBody is the room that one body takes.
type heldBody struct {
	owner   *bodies
	bytes   int64
	control *http.ResponseController
	release func() // gives the room up; once
}

// reserve waits for room for n bytes. Callers that stopped sending make room for those that send.
func (b *bodies) reserve(ctx context.Context, w http.ResponseWriter, n int64) (*heldBody, error) {
	ctx, cancel := context.WithTimeout(ctx, bodyWait)
	defer cancel()
	p := &heldBody{owner: b, bytes: min(n, b.limit), control: http.NewResponseController(w)}
	for !b.room.TryAcquire(p.bytes) {
		b.cutStalled(p.bytes)
		look, stop := context.WithTimeout(ctx, roomLook)
		err := b.room.Acquire(look, p.bytes)
		stop()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			b.refused.Add(1)
			return nil, busyWithBodies()
		}
	}
	p.release = sync.OnceFunc(func() { b.room.Release(p.bytes) })
	return p, nil
}

func busyWithBodies() error {
	return &registry.Error{
		Code: registry.CodeBusy, RetryAfter: roomRetry,
		Message: "This pod holds as many long requests as it may. Retry after a moment, or send less at once.",
	}
}

// cutStalled ends requests of whose bodies nothing has come for long, the slowest first, until there will be room for n bytes.
func (b *bodies) cutStalled(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range slices.SortedFunc(maps.Keys(b.arriving), func(x, y *heldBody) int { return b.arriving[x].Compare(b.arriving[y]) }) {
		if n <= 0 || time.Since(b.arriving[p]) < stallGrace {
			return
		}
		n -= p.bytes
		delete(b.arriving, p)
		_ = p.control.SetReadDeadline(time.Unix(1, 0)) // the read under way fails, and with it the request
	}
}

// begin notes that another part is expected. It reports false if the request was ended.
func (p *heldBody) begin(first bool) bool {
	p.owner.mu.Lock()
	defer p.owner.mu.Unlock()
	if _, ok := p.owner.arriving[p]; !ok && !first {
		return false
	}
	p.owner.arriving[p] = time.Now()
	return true
}

// end notes that no more is expected. It reports false if the request was ended.
func (p *heldBody) end() bool {
	p.owner.mu.Lock()
	defer p.owner.mu.Unlock()
	_, ok := p.owner.arriving[p]
	delete(p.owner.arriving, p)
	return ok
}

// read reads a body of at most p.bytes. Memory is taken for what has come, not for what was announced.
func (p *heldBody) read(r io.Reader) ([]byte, error) {
	defer p.end()
	body := make([]byte, 0, smallBody)
	for first := true; ; first = false {
		if !p.begin(first) {
			return nil, busyWithBodies()
		}
		left := int(p.bytes) - len(body)
		if want := max(min(smallBody, left), 1); cap(body)-len(body) < want { // the end may yet have to be read
			body = slices.Grow(body, max(min(cap(body), left), want))
		}
		until := len(body) + min(bodyPart, cap(body)-len(body))
		for len(body) < until {
			n, err := r.Read(body[len(body):until])
			body = body[:len(body)+n]
			switch {
			case err == io.EOF:
				return body, nil
			case err != nil && !p.end():
				return nil, busyWithBodies()
			case err != nil:
				return nil, err
			}
		}
	}
}

// readBody reads the body of a request, and has the room it takes given up when the request ends, or by who takes the room
// over with takeBody.
func (h *handler) readBody(c *gin.Context) ([]byte, error) {
	body, held, err := h.bodies.readBody(c.Writer, c.Request, h.MaxBody)
	if held != nil {
		c.Set(keyBody, held)
	}
	return body, err
}

// takeBody returns what gives up the room of the body of a request, and whose business that is from now on; nil if it takes none.
func takeBody(c *gin.Context) (release func()) {
	if held, ok := c.Get(keyBody); ok {
		c.Set(keyBody, nil)
		if p, _ := held.(*heldBody); p != nil {
			return p.release
		}
	}
	return nil
}

// releaseBody gives up the room of the body of a request that has ended.
func releaseBody(c *gin.Context) {
	if release := takeBody(c); release != nil {
		release()
	}
}

// parse runs what understands a body, long ones after each other.
func parse[T any](c *gin.Context, i *agent.Invoker, body []byte, by func([]byte) (T, error)) (parsed T, err error) {
	if len(body) <= smallBody {
		return by(body)
	}
	done, err := i.Read(c.Request.Context(), len(body))
	if err != nil {
		return parsed, err
	}
	defer done()
	return by(body)
}

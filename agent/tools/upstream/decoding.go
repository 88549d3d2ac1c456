package upstream

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/farhand/farhand/internal/share"
)

// Decoding an answer takes memory, up to a hundred times its text. It is held until the call has its result. Small
// answers do not count: there are few of them at once.
const (
	decodedPool  = 256 << 20       // bytes of decoded answers on this pod, half of them of one tenant
	decodedValue = 256             // bytes of a JSON value
	decodedText  = 3               // times the text: as it came, its result, and its strings
	smallAnswer  = 64 << 10        // decoded bytes up to which an answer does not count
	decodingWait = 5 * time.Second // for other answers to be released
)

func newDecoding() *share.Pool { return share.New(share.Bounds{Pod: decodedPool}) }

var (
	errCrowded  = errors.New("too many long answers are being read on this pod, or of this tenant")
	errNoCaller = errors.New("a long answer of the server belongs to no request")
)

// answers are the decoded answers to one attempt. The zero value is ready. It is safe for concurrent use.
type answers struct {
	mu    sync.Mutex
	held  []*share.Grant
	ended bool
}

func (a *answers) keep(g *share.Grant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		g.Release()
		return
	}
	a.held = append(a.held, g)
}

// release releases the answers so far, because they have been read.
func (a *answers) release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range a.held {
		g.Release()
	}
	a.held = nil
}

// finish releases all answers, also those that are yet to come.
func (a *answers) finish() {
	a.mu.Lock()
	a.ended = true
	a.mu.Unlock()
	a.release()
}

func (a *answers) isOver() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ended
}

// reserve waits until the pod has memory for an answer with that many values, of so many bytes, and holds it for the
// request that it answers. Other messages are short, and nothing keeps them.
func (c *connection) reserve(message jsonrpc.Message, from *paced, bytes, values int) error {
	weight := int64(decodedText*bytes + decodedValue*values)
	if _, answer := message.(*jsonrpc.Response); !answer || weight <= smallAnswer {
		return nil
	}
	a := c.answered(message, from)
	if a == nil || a.answers.isOver() {
		return errNoCaller
	}
	a.answers.release() // a request has one answer: nothing reads the earlier ones
	ctx, cancel := context.WithTimeoutCause(from.ctx, decodingWait, errCrowded)
	defer cancel()
	if a.ctx != nil {
		defer context.AfterFunc(a.ctx, cancel)()
	}
	grant, err := c.decoding.Acquire(ctx, share.Owner{Tenant: a.tenant}, weight)
	if err != nil {
		return errCrowded
	}
	a.answers.keep(grant)
	return nil
}

// answered returns the attempt that a message belongs to, nil if there is none.
func (c *connection) answered(message jsonrpc.Message, from *paced) *attempt {
	if a := attemptOf(from.ctx); a.ctx != nil {
		return a
	}
	if r, ok := message.(*jsonrpc.Response); ok && c.program != nil {
		c.mu.Lock()
		a := c.asked[r.ID]
		c.mu.Unlock()
		if a != nil {
			return a
		}
	}
	return c.first // while the session begins
}

// isStray reports whether a message is an answer to another request than the one whose HTTP response has it. Nothing
// would read it, or another call would.
func (c *connection) isStray(message jsonrpc.Message, from *paced) bool {
	r, ok := message.(*jsonrpc.Response)
	a := attemptOf(from.ctx)
	if !ok || a.ctx == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return a.id.IsValid() && a.id != r.ID
}

// posts notes the id of a request that is sent over HTTP.
func (c *connection) posts(a *attempt, id jsonrpc.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.ctx != nil && id.IsValid() {
		a.id = id
	}
}

// asks notes that a program is sent a request.
func (c *connection) asks(message jsonrpc.Message, a *attempt) {
	r, ok := message.(*jsonrpc.Request)
	if !ok || !r.IsCall() || a.ctx == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.answers.isOver() {
		return
	}
	c.asked[r.ID], a.id = a, r.ID
}

// finishAttempt ends an attempt: nothing reads its answers any more.
func (c *connection) finishAttempt(a *attempt) {
	a.answers.finish()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.asked, a.id)
}

package upstream

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/farhand/farhand/internal/share"
)

// Decoding an answer takes memory, up to a hundred times its text. It is held until the call has its result. The text
// itself counts while it arrives. Small answers do not count: there are few of them at once.
const (
	decodedPool  = 256 << 20       // bytes of decoded answers on this pod, half of them of one tenant
	decodedValue = 256             // bytes of a JSON value
	decodedText  = 3               // times the text: as it came, its result, and its strings
	smallAnswer  = 64 << 10        // decoded bytes up to which an answer does not count
	readingStep  = 256 << 10       // bytes that a message takes at once while it arrives
	decodingWait = 5 * time.Second // for other answers to be released
)

func newDecoding() *share.Pool { return share.New(share.Bounds{Pod: decodedPool}) }

var (
	errCrowded  = errors.New("too many long answers are being read on this pod, or of this tenant")
	errNoCaller = errors.New("a long answer of the server belongs to no request")
)

// grants are the memory of the decoded answers to one attempt, or of a message that arrives. The zero value is ready.
// It is safe for concurrent use.
type grants struct {
	mu    sync.Mutex
	held  []*share.Grant
	ended bool
}

// take returns the grants so far; the caller releases them.
func (a *grants) take() []*share.Grant {
	a.mu.Lock()
	defer a.mu.Unlock()
	held := a.held
	a.held = nil
	return held
}

func (a *grants) keep(g *share.Grant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		g.Release()
		return
	}
	a.held = append(a.held, g)
}

// release releases the answers so far, because they have been read.
func (a *grants) release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range a.held {
		g.Release()
	}
	a.held = nil
}

// finish releases all answers, also those that are yet to come.
func (a *grants) finish() {
	a.mu.Lock()
	a.ended = true
	a.mu.Unlock()
	a.release()
}

func (a *grants) isOver() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ended
}

// arrives counts the first n bytes of a message that is being read. It waits for memory, and fails with errCrowded.
func (c *connection) arrives(from *paced, n int) error {
	for n > smallAnswer && int64(n) > from.counted {
		grant, err := c.acquire(from, attemptOf(from.ctx), readingStep)
		if err != nil {
			return err
		}
		from.arriving.keep(grant)
		from.counted += readingStep
	}
	return nil
}

// arrived releases the memory of the message that was read last.
func (from *paced) arrived() {
	from.arriving.release()
	from.counted = 0
}

// reserve waits until the pod has memory for an answer with that many values, of so many bytes, and holds it for the
// request that it answers. What the answer took while it arrived is part of that. Other messages are short, and nothing
// keeps them.
func (c *connection) reserve(message jsonrpc.Message, from *paced, bytes, values int) error {
	weight := int64(decodedText*bytes + decodedValue*values)
	if _, answer := message.(*jsonrpc.Response); !answer || weight <= smallAnswer {
		return nil
	}
	a := c.answered(message, from)
	if a == nil || a.answers.isOver() {
		return errNoCaller
	}
	a.answers.release() // of another request, such as that of the page of a list before: it was read
	same := a.tenant == attemptOf(from.ctx).tenant
	if same {
		weight = max(weight-from.counted, 0)
	}
	grant, err := c.acquire(from, a, weight)
	if err != nil {
		return err
	}
	a.answers.keep(grant)
	if same {
		for _, part := range from.arriving.take() {
			a.answers.keep(part)
		}
	}
	from.arrived()
	return nil
}

// acquire waits for memory of an attempt's tenant until either the reader or the attempt ends.
func (c *connection) acquire(from *paced, a *attempt, weight int64) (*share.Grant, error) {
	ctx, cancel := context.WithTimeoutCause(from.ctx, decodingWait, errCrowded)
	defer cancel()
	if a.ctx != nil {
		defer context.AfterFunc(a.ctx, cancel)()
	}
	grant, err := c.decoding.Acquire(ctx, share.Owner{Tenant: a.tenant}, weight)
	if err != nil {
		return nil, errCrowded
	}
	return grant, nil
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

// isUnmatched reports whether a message is an answer that nothing would read, or another call would: it answers another
// request than the one whose HTTP response has it, or one that was answered before. A second answer thus does not
// release the memory of the first, which is still in use.
func (c *connection) isUnmatched(message jsonrpc.Message, from *paced) bool {
	r, ok := message.(*jsonrpc.Response)
	if !ok {
		return false
	}
	a, answered := attemptOf(from.ctx), c.answered(message, from)
	c.mu.Lock()
	defer c.mu.Unlock()
	return a.ctx != nil && a.id.IsValid() && a.id != r.ID ||
		answered != nil && answered.last.IsValid() && answered.last == r.ID
}

// passes notes the id of an answer that was accepted.
func (c *connection) passes(message jsonrpc.Message, from *paced) {
	r, ok := message.(*jsonrpc.Response)
	if !ok {
		return
	}
	if a := c.answered(message, from); a != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		a.last = r.ID
	}
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
	delete(c.asked, a.id) // of the page before, which was answered
	c.asked[r.ID], a.id = a, r.ID
}

// finishAttempt ends an attempt: nothing reads its answers any more.
func (c *connection) finishAttempt(a *attempt) {
	a.answers.finish()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.asked, a.id)
}

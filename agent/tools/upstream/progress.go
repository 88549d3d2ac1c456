package upstream

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/legible"
)

const (
	progressRate  = 10 // reports of one call, a second; others are dropped, but for the last
	progressBurst = 20
	maxProgress   = 1 << 10 // bytes of the text of one
)

// reports passes on what a server says of the progress of calls. The zero value is ready.
type reports struct {
	mu   sync.Mutex
	next int
	of   map[string]*report // by token
}

// report is where the progress of one call goes.
type report struct {
	ctx  context.Context // of Execute
	pace bucket

	mu    sync.Mutex
	held  *registry.Report // the last one, if it came too fast
	ended bool
}

// follow returns the token of a call whose progress is wanted until stop is called, which passes on the last report if
// that came too fast.
func (r *reports) follow(ctx context.Context) (token string, stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = make(map[string]*report)
	}
	r.next++
	token = strconv.Itoa(r.next)
	of := &report{ctx: ctx, pace: bucket{rate: progressRate, burst: progressBurst}}
	r.of[token] = of
	return token, func() {
		r.mu.Lock()
		delete(r.of, token)
		r.mu.Unlock()
		of.end()
	}
}

// progressNotification is what is read of a message that may be a report.
type progressNotification struct {
	Method string `json:"method"`
	Params struct {
		Token    string   `json:"progressToken"`
		Progress *float64 `json:"progress"`
		Total    *float64 `json:"total"`
		Message  string   `json:"message"`
	} `json:"params"`
}

// see passes on a report of a call that runs. It ignores every other message.
func (r *reports) see(message []byte) {
	var n progressNotification
	if json.Unmarshal(message, &n) != nil || n.Method != "notifications/progress" {
		return
	}
	r.mu.Lock()
	of := r.of[n.Params.Token]
	r.mu.Unlock()
	if of == nil {
		return
	}
	if n.Params.Total != nil && *n.Params.Total <= 0 {
		n.Params.Total = nil // it is not known
	}
	text := n.Params.Message
	of.tell(registry.Report{
		Progress: n.Params.Progress, Total: n.Params.Total, Message: legible.Line(text[:min(len(text), maxProgress)]),
	})
}

// tell passes on a report, or holds it if it comes too fast.
func (r *report) tell(p registry.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.ended:
	case r.pace.try():
		r.held = nil
		agent.Report(r.ctx, p)
	default:
		r.held = &p
	}
}

// end passes on the report that is held, and ignores those that come later.
func (r *report) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended = true; r.held != nil {
		agent.Report(r.ctx, *r.held)
	}
}

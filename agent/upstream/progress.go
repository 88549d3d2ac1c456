package upstream

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry/legible"
)

const (
	progressRate  = 10 // reports of one call, a second; others are dropped
	progressBurst = 20
	maxProgress   = 1 << 10 // bytes of one
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
}

// follow returns the token of a call whose progress is wanted until stop is called.
func (r *reports) follow(ctx context.Context) (token string, stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = make(map[string]*report)
	}
	r.next++
	token = strconv.Itoa(r.next)
	r.of[token] = &report{ctx: ctx, pace: bucket{rate: progressRate, burst: progressBurst}}
	return token, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.of, token)
	}
}

// tell passes on a report of a call that runs. What comes too fast is dropped.
func (r *reports) tell(p *mcp.ProgressNotificationParams) {
	token, ok := p.ProgressToken.(string)
	if !ok {
		return
	}
	r.mu.Lock()
	of := r.of[token]
	r.mu.Unlock()
	if of == nil || !of.pace.try() {
		return
	}
	text := legible.Line(p.Message[:min(len(p.Message), maxProgress)])
	if p.Total > 0 {
		text = fmt.Sprintf("%g of %g %s", p.Progress, p.Total, text)
	} else if text == "" {
		text = fmt.Sprintf("%g", p.Progress)
	}
	agent.ReportProgress(of.ctx, text, "")
}

package chat

import (
	"cmp"
	"fmt"
	"time"
)

// Limits bound what turns may use. A zero field has its default.
type Limits struct {
	Iterations    int           // requests to the model in one turn; default 40
	ToolCalls     int           // tool calls in one turn; default 200
	Turn          time.Duration // how long one turn may take, from the moment its conversation is free; default 10 min
	Tokens        int           // tokens of one turn, read and written, over all its requests; default 1,000,000
	ParallelCalls int           // tool calls of one answer that run side by side; default 8
	ContextTokens int           // estimated tokens of one request, without older messages if need be; default 100,000
	MaxResult     int           // bytes of one tool result, as model and people read it; default 32 KiB, least 1 KiB
	MaxTurns      int           // turns this pod runs, or lets wait, at once, at most half of them of one tenant; default 1000
	Waiting       int           // turns of one session that wait on this pod for their conversation; default 4
	Continuation  time.Duration // how long what a completion did before it returned calls is kept; default 15 min
	Wait          time.Duration // how long such a turn waits before it is refused; default 30 s
}

// leastResult is the smallest MaxResult. What remains beside the note of what is left out must still be useful.
const leastResult = 1 << 10

// withDefaults returns the limits with defaults filled in.
func (l Limits) withDefaults() Limits {
	return Limits{
		Iterations:    cmp.Or(l.Iterations, 40),
		ToolCalls:     cmp.Or(l.ToolCalls, 200),
		Turn:          cmp.Or(l.Turn, 10*time.Minute),
		Tokens:        cmp.Or(l.Tokens, 1_000_000),
		ParallelCalls: cmp.Or(l.ParallelCalls, 8),
		ContextTokens: cmp.Or(l.ContextTokens, 100_000),
		MaxResult:     cmp.Or(l.MaxResult, 32<<10),
		MaxTurns:      cmp.Or(l.MaxTurns, 1000),
		Waiting:       cmp.Or(l.Waiting, 4),
		Continuation:  cmp.Or(l.Continuation, 15*time.Minute),
		Wait:          cmp.Or(l.Wait, 30*time.Second),
	}
}

// validate checks limits that have their defaults.
func (l Limits) validate() error {
	for _, f := range []struct {
		name  string
		value int64
		least int64
	}{
		{"Iterations", int64(l.Iterations), 1}, {"ToolCalls", int64(l.ToolCalls), 1}, {"Turn", int64(l.Turn), 1},
		{"Tokens", int64(l.Tokens), 1}, {"ParallelCalls", int64(l.ParallelCalls), 1},
		{"ContextTokens", int64(l.ContextTokens), 1}, {"MaxResult", int64(l.MaxResult), leastResult},
		{"MaxTurns", int64(l.MaxTurns), 1}, {"Waiting", int64(l.Waiting), 1}, {"Wait", int64(l.Wait), 1},
		{"Continuation", int64(l.Continuation), 1},
	} {
		if f.value < f.least {
			return fmt.Errorf("chat: Limits.%s must be at least %d", f.name, f.least)
		}
	}
	return nil
}

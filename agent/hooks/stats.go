package hooks

import (
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/internal/share"
)

// Outcomes of questions, as metrics name them.
const outcomeFailed = "failed" // no answer that could be used; every other outcome is a decision

// Outcomes returns all outcomes of questions.
func Outcomes() []string {
	return []string{decisionContinue, decisionModify, decisionCancel, outcomeFailed}
}

// Stats are counts of a Hook since it was made. Questions of calls whose callers had gone are not counted.
type Stats struct {
	Name      string
	Questions map[string]int64 // by outcome
	Took      time.Duration    // all of them together, waiting for their turns included
}

// counts count what became of questions. They are safe for concurrent use.
type counts struct {
	took     atomic.Int64
	outcomes map[string]*atomic.Int64 // never changes
}

func newCounts() *counts {
	c := &counts{outcomes: make(map[string]*atomic.Int64)}
	for _, name := range Outcomes() {
		c.outcomes[name] = new(atomic.Int64)
	}
	return c
}

func (c *counts) note(outcome string, took time.Duration) {
	c.outcomes[outcome].Add(1)
	c.took.Add(int64(took))
}

// Pools returns how full the pools of the hook are, by name.
func (h *Hook) Pools() map[string]share.Stats {
	return map[string]share.Stats{
		"hook_questions": h.client.slots.Stats(), "hook_bytes": h.client.held.Stats(),
		"hook_messages": h.notices.Stats(),
	}
}

// Stats returns the counts.
func (h *Hook) Stats() Stats {
	s := Stats{
		Name: h.cfg.Name, Questions: make(map[string]int64, len(h.counts.outcomes)),
		Took: time.Duration(h.counts.took.Load()),
	}
	for name, n := range h.counts.outcomes {
		s.Questions[name] = n.Load()
	}
	return s
}

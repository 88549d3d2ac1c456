package agent

import (
	"slices"
	"sync"
)

// CallHistory is what guards remember of the calls of one turn whose conversation the caller keeps: nothing of it
// outlives the turn. For a conversation that the gateway keeps, registry.ConversationStore has the same (AppendTrail).
// It is safe for concurrent use; the zero value is empty.
type CallHistory struct {
	mu      sync.Mutex
	entries []string
}

// Append adds an entry and returns the last ones, oldest first, at most limit of them, the new one among them.
func (h *CallHistory) Append(entry string, limit int) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries = append(h.entries, entry)
	h.entries = slices.Delete(h.entries, 0, max(0, len(h.entries)-max(limit, 1)))
	return slices.Clone(h.entries)
}

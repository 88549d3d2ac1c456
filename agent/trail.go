package agent

import (
	"slices"
	"sync"
)

// Trail is the short memory that guards keep of one turn whose conversation is its caller's: nothing of it is to outlive
// the turn. It is what a trail in registry.ConversationStore is to a conversation the gateway keeps. It is safe for
// concurrent use; the zero value is empty.
type Trail struct {
	mu      sync.Mutex
	entries []string
}

// Append adds an entry and returns the last ones, oldest first, at most limit of them, the new one among them.
func (t *Trail) Append(entry string, limit int) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries = append(t.entries, entry)
	t.entries = slices.Delete(t.entries, 0, max(0, len(t.entries)-max(limit, 1)))
	return slices.Clone(t.entries)
}

package workspace

import (
	"fmt"
	"sync"
	"time"
)

const (
	cleanTime  = time.Minute // for a command in a full workspace
	cleanPause = time.Minute // before the next one, when it has added to the workspace
	slackBytes = 64 << 10    // that it may add: empty files and folders take room, too
	slackFiles = 8
)

// cleaning lets one command at a time into each full workspace, and after one that added to it none for cleanPause.
type cleaning struct {
	mu     sync.Mutex
	spaces map[string]cleaner // by the id of the workspace
}

type cleaner struct {
	running bool
	until   time.Time // no command before
}

// begin lets a command in, or says why not. full is why the workspace is full.
func (c *cleaning) begin(id string, full error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for other, s := range c.spaces {
		if !s.running && !now.Before(s.until) {
			delete(c.spaces, other)
		}
	}
	s, found := c.spaces[id]
	switch {
	case found && s.running:
		return fmt.Errorf("%w. Another command is making room: wait for it", full)
	case found:
		return fmt.Errorf("%w. The last command has added files: the next one may run in %v", full,
			s.until.Sub(now).Round(time.Second))
	}
	if c.spaces == nil {
		c.spaces = map[string]cleaner{}
	}
	c.spaces[id] = cleaner{running: true}
	return nil
}

// end notes that a command has ended, and whether it has added to the workspace.
func (c *cleaning) end(id string, added bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.spaces, id)
	if added {
		c.spaces[id] = cleaner{until: time.Now().Add(cleanPause)}
	}
}

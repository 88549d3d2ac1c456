package workspace

import (
	"fmt"
	"sync"
	"time"
)

const (
	cleanTime  = time.Minute // for a command in a full workspace
	cleanPause = time.Minute // in which commands there may add slackBytes and slackFiles, or the next one waits
	slackBytes = 64 << 10    // empty files and folders take room, too
	slackFiles = 8
)

// cleaning lets one command at a time into each full workspace, and none for cleanPause after those that added to it.
type cleaning struct {
	mu     sync.Mutex
	spaces map[string]cleaner // by the id of the workspace
}

type cleaner struct {
	running bool
	added   float64   // share of what may be added
	until   time.Time // when that is forgotten
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
	case s.added > 1:
		return fmt.Errorf("%w. Commands there have added files: the next one may run in %v", full,
			s.until.Sub(now).Round(time.Second))
	}
	if c.spaces == nil {
		c.spaces = map[string]cleaner{}
	}
	s.running = true
	c.spaces[id] = s
	return nil
}

// end notes that a command has ended, and what share it has added of what may be added to the workspace.
func (c *cleaning) end(id string, added float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.spaces[id]
	s.running = false
	if added > 0 {
		s.added, s.until = s.added+added, time.Now().Add(cleanPause)
	}
	c.spaces[id] = s
	if s.added == 0 {
		delete(c.spaces, id)
	}
}

package provenance

import (
	"encoding/json"
	"sync"
)

// Conversation knows where the values of one conversation were seen. It is safe for concurrent use. What it is told is
// read only when Origins is first called, so that conversations whose calls nobody asks about cost nothing.
type Conversation struct {
	mu      sync.Mutex
	tainted bool
	unread  []text

	reader  reader
	trusted *index
	outside *index
}

type text struct {
	of   origin
	text string
}

// New returns a Conversation that has no text yet.
func New() *Conversation { return new(Conversation) }

// Add tells a text, and where it comes from. id names it in Argument.Where. Texts of Model are not looked at, because a
// model only repeats.
func (c *Conversation) Add(source Source, id, said string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if source == Outside {
		c.tainted = true
	}
	if source != Model && said != "" {
		c.unread = append(c.unread, text{origin{source, id}, said})
	}
}

// Taint notes that something from outside was read, though its text is not there any more.
func (c *Conversation) Taint() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tainted = true
}

// Tainted reports whether something from outside was read.
func (c *Conversation) Tainted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tainted
}

// Origins says where the values of a call's arguments were seen first. args is JSON, and schema the JSON Schema of the
// arguments, if there is one: a value that it lists says nothing. Values that are no evidence, such as true, have no
// Argument. If nothing from outside was read, there are no Arguments at all.
func (c *Conversation) Origins(args, schema json.RawMessage) Facts {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.tainted {
		return Facts{}
	}
	c.read()
	s := search{Conversation: c, budget: maxSteps, schema: schema}
	s.args(args)
	return Facts{Tainted: true, Arguments: s.found}
}

// read reads what was told since the last time.
func (c *Conversation) read() {
	if c.trusted == nil {
		c.reader.months = monthsByHash()
		c.trusted, c.outside = newIndex(), newIndex()
	}
	for _, t := range c.unread {
		if t.of.source.trusted() {
			c.reader.addTrusted(c.trusted, t.of, t.text)
		} else {
			c.reader.addOutside(c.outside, t.of, t.text)
		}
	}
	c.unread = nil
}

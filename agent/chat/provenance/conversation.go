package provenance

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// Conversation knows where the values of one conversation were seen. It is safe for concurrent use. What it is told is
// read only when Origins is first called, so that conversations whose calls nobody asks about cost nothing.
type Conversation struct {
	mu      sync.Mutex
	tainted bool
	unread  []text

	reader   reader
	system   *index // the system prompt
	trusted  *index // the other trusted texts
	outside  *index
	approved map[string]*index // by parameter
}

type text struct {
	of   origin
	text string
	tool string // whose approved arguments the text is
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
		c.unread = append(c.unread, text{of: origin{source, id}, text: said})
	}
}

// System tells the system prompt, in place of the one before. id names it in Argument.Where.
func (c *Conversation) System(id, said string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.prepare()
	c.system = newIndex()
	c.reader.addTrusted(c.system, origin{System, id}, said)
}

// Approve tells the arguments of a call that a person has approved. They vouch for values of the same parameters of the
// same tool, and only the short ones do: of a long text nobody has read each word. id names them in Argument.Where.
func (c *Conversation) Approve(tool, id string, args json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if tool != "" {
		c.unread = append(c.unread, text{origin{Approved, id}, string(args), tool})
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

// Call is a call of a model.
type Call struct {
	Tool   string          // as Approve has it; empty: what was approved before vouches for nothing
	Args   json.RawMessage // JSON
	Schema json.RawMessage // the JSON Schema of Args, if there is one: a value that it lists says nothing

	// Destinations are JSON Pointers to the parameters that say where something goes; a step "*" stands for any. What
	// is at or below one of them must be named by a trusted source, whatever it looks like.
	Destinations []string
}

// Origins says where the values of a call's arguments were seen first. Values that are no evidence, such as true, have
// no Argument. If nothing from outside was read, there are no Arguments at all.
func (c *Conversation) Origins(call Call) Facts {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.tainted {
		return Facts{}
	}
	c.read()
	s := search{Conversation: c, budget: maxSteps, call: call}
	s.args()
	return Facts{Tainted: true, Arguments: s.found}
}

// prepare makes the indexes.
func (c *Conversation) prepare() {
	if c.trusted == nil {
		c.reader.months = monthsByHash()
		c.system, c.trusted, c.outside, c.approved = newIndex(), newIndex(), newIndex(), make(map[string]*index)
	}
}

// Size returns about how many bytes of memory the conversation takes.
func (c *Conversation) Size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := 0
	for _, t := range c.unread {
		size += len(t.text)
	}
	if c.trusted == nil {
		return size
	}
	for _, x := range c.approved {
		size += x.size()
	}
	return size + c.system.size() + c.trusted.size() + c.outside.size() + cap(c.reader.tokens)*tokenSize
}

// Full reports whether texts were left out because there are too many.
func (c *Conversation) Full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trusted != nil && (c.trusted.cut || c.outside.cut)
}

// read reads what was told since the last time.
func (c *Conversation) read() {
	c.prepare()
	for _, t := range c.unread {
		if t.tool != "" {
			c.addApproved(t)
		} else if t.of.source.trusted() {
			c.reader.addTrusted(c.trusted, t.of, t.text)
		} else {
			c.reader.addOutside(c.outside, t.of, t.text)
		}
	}
	c.unread = nil
}

// maxParameters bounds the parameters whose approved values are remembered; those of others vouch for nothing.
const maxParameters = 1000

// addApproved notes the short values of approved arguments by their parameters.
func (c *Conversation) addApproved(t text) {
	eachScalar([]byte(t.text), func(pointer string, value jsontext.Token, key bool) bool {
		said := value.String()
		if key || isLong(said) {
			return true
		}
		name := parameterOf(t.tool, pointer)
		x := c.approved[name]
		if x == nil {
			if len(c.approved) >= maxParameters {
				return false
			}
			x = newIndex()
			c.approved[name] = x
		}
		c.reader.addTrusted(x, t.of, c.trusted.admit(said, maxTrusted))
		return true
	})
}

// eachScalar calls visit with the strings and numbers of some JSON, and with the names of members, until it returns
// false or the JSON ends.
func eachScalar(args json.RawMessage, visit func(pointer string, value jsontext.Token, key bool) bool) {
	d := jsontext.NewDecoder(bytes.NewReader(args), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
	for {
		t, err := d.ReadToken()
		if err != nil { // the end; arguments were checked before
			return
		}
		if kind := t.Kind(); kind != '"' && kind != '0' {
			continue
		}
		container, n := d.StackIndex(d.StackDepth())
		if !visit(string(d.StackPointer()), t, container == '{' && n%2 == 1) {
			return
		}
	}
}

// isLong reports whether a text is longer than a name.
func isLong(said string) bool {
	if len(said) > maxNameBytes || strings.Contains(said, "\n") {
		return true
	}
	_, more := tokensOf(said, maxNameTokens)
	return more
}

// parameterOf returns the name of a parameter of a tool: that of all elements of a list is the list's.
func parameterOf(tool, pointer string) string {
	steps := slices.DeleteFunc(strings.Split(pointer, "/"), isIndex)
	return tool + " " + strings.Join(steps, "/")
}

// anyStep stands for any step of a pointer.
const anyStep = "*"

func isIndex(step string) bool { return step != "" && countDigits(step) == len(step) }

// believe looks for a value among what trusted sources have said, and what was approved as a value of its parameter.
func (s *search) believe(pointer string, look func(*index) (origin, bool)) (origin, bool) {
	for _, x := range []*index{s.system, s.trusted, s.approved[parameterOf(s.call.Tool, pointer)]} {
		if x != nil {
			if of, ok := look(x); ok {
				return of, true
			}
		}
	}
	return origin{}, false
}

// isDestination reports whether a value says where something goes.
func (s *search) isDestination(pointer string) bool {
	for _, to := range s.call.Destinations {
		if liesIn(pointer, to) {
			return true
		}
	}
	return false
}

// liesIn reports whether a pointer leads to what another one means, or below it.
func liesIn(pointer, to string) bool {
	steps, wanted := strings.Split(pointer, "/"), strings.Split(to, "/")
	if len(steps) < len(wanted) {
		return false
	}
	for i, w := range wanted {
		if w != anyStep && w != steps[i] {
			return false
		}
	}
	return true
}

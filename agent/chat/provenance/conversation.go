package provenance

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// Conversation records where the values of one conversation were seen. It is safe for concurrent use. It reads added
// texts only when Origins is called, so conversations without such checks cost nothing.
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
	tool string // the tool whose approved arguments the text is
}

// New returns an empty Conversation.
func New() *Conversation { return new(Conversation) }

// Add adds a text with its source. id identifies the text in Argument.Where. Texts of Model are ignored, because a
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

// System replaces the system prompt. id identifies it in Argument.Where.
func (c *Conversation) System(id, said string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.prepare()
	c.system = newIndex()
	c.reader.addTrusted(c.system, origin{System, id}, said)
}

// Approve adds the arguments of a call that a person has approved. They vouch for values of the same parameters of the
// same tool. Only short values count, because people do not read every word of a long text. id identifies them in
// Argument.Where.
func (c *Conversation) Approve(tool, id string, args json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if tool != "" {
		c.unread = append(c.unread, text{origin{Approved, id}, string(args), tool})
	}
}

// Taint records that text from outside was read, although the text is no longer available.
func (c *Conversation) Taint() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tainted = true
}

// Tainted reports whether text from outside was read.
func (c *Conversation) Tainted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tainted
}

// Call is a tool call of a model.
type Call struct {
	Tool   string          // as in Approve; empty: earlier approvals do not count
	Args   json.RawMessage // JSON
	Schema json.RawMessage // the JSON Schema of Args, if any: a value that it lists proves nothing

	// Destinations are JSON Pointers to the parameters that say where something is sent. A step "*" matches any step. A
	// trusted source must contain the values at or below them, whatever they look like.
	Destinations []string
}

// Origins returns where the values of a call's arguments were first seen. Values that prove nothing, such as true, have
// no Argument. If no text from outside was read, there are no Arguments at all.
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

// prepare creates the indexes, once.
func (c *Conversation) prepare() {
	if c.trusted == nil {
		c.reader.months = monthsByHash()
		c.system, c.trusted, c.outside, c.approved = newIndex(), newIndex(), newIndex(), make(map[string]*index)
	}
}

// Size returns the approximate memory of the conversation, in bytes.
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

// Full reports whether texts were dropped because of the size limits.
func (c *Conversation) Full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trusted != nil && (c.trusted.cut || c.outside.cut)
}

// read indexes the texts that were added since the last call.
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

// maxParameters is the maximum number of parameters with approved values. Further parameters have none.
const maxParameters = 1000

// addApproved indexes the short values of approved arguments by parameter.
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

// eachScalar calls visit with the strings and numbers of a JSON value, and with the names of members. It stops when
// visit returns false or the JSON ends.
func eachScalar(args json.RawMessage, visit func(pointer string, value jsontext.Token, key bool) bool) {
	d := jsontext.NewDecoder(bytes.NewReader(args), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
	for {
		t, err := d.ReadToken()
		if err != nil { // the end; arguments were checked earlier
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

// parameterOf returns the name of a parameter of a tool. All elements of a list have the name of the list.
func parameterOf(tool, pointer string) string {
	steps := slices.DeleteFunc(strings.Split(pointer, "/"), isIndex)
	return tool + " " + strings.Join(steps, "/")
}

// anyStep matches any step of a pointer.
const anyStep = "*"

func isIndex(step string) bool { return step != "" && countDigits(step) == len(step) }

// findTrusted looks for a value in the trusted texts, and in the values approved for its parameter.
func (s *search) findTrusted(pointer string, look func(*index) (origin, bool)) (origin, bool) {
	for _, x := range []*index{s.system, s.trusted, s.approved[parameterOf(s.call.Tool, pointer)]} {
		if x != nil {
			if of, ok := look(x); ok {
				return of, true
			}
		}
	}
	return origin{}, false
}

// isDestination reports whether a value is a destination, as of Call.Destinations.
func (s *search) isDestination(pointer string) bool {
	for _, to := range s.call.Destinations {
		if liesIn(pointer, to) {
			return true
		}
	}
	return false
}

// liesIn reports whether a pointer is at or below the pointer to.
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

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
// texts only when Origins is called.
type Conversation struct {
	mu      sync.Mutex
	tainted bool
	unread  []text
	ids     int // bytes of the ids of all texts

	marking     bool          // until a text after Mark is read
	mark        int           // how many unread texts are from before
	markTainted bool          // at Mark
	marked      *Conversation // as it was at Mark, once a later text has been read

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

// Add adds a text. id identifies it in Argument.Where. Texts of Model are ignored, because a model only repeats.
func (c *Conversation) Add(source Source, id, said string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if source == Outside {
		c.tainted = true
	}
	if source != Model && said != "" {
		c.ids += len(id)
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

// Approve adds the arguments of a call that a person has approved, identified by id. Their short values vouch for the
// same parameters of the same tool. People do not read every word of a long text.
func (c *Conversation) Approve(tool, id string, args json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if tool != "" {
		c.ids += len(id)
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
	// trusted source must contain the values at or below them, whatever they look like. The case of names does not
	// matter, because tools may ignore it: encoding/json takes "To" for "to".
	Destinations []string
}

// Origins returns where the values of a call's arguments were first seen, if any text from outside was read. Values
// that prove nothing, such as true, have no Argument.
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

// Defined returns the addresses in a call's arguments that stand in definitions, or begin with an address that does, or
// are below its host, and that no trusted source contains.
// The definitions are those of tools that others than the called tool's owner wrote: a model reads them before anything
// else. Defined is for conversations that have read nothing from outside, and returns nothing for others. It calls
// definitions only if there is an address to look for.
func (c *Conversation) Defined(call Call, definitions func() string) Facts {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tainted {
		return Facts{}
	}
	c.read()
	if len(c.untrustedAddresses(call)) == 0 {
		return Facts{}
	}
	before := c.outside
	defer func() { c.outside = before }()
	c.outside = newIndex()
	text := definitions()
	c.reader.addProse(c.outside, origin{Outside, "the definition of a tool"}, c.outside.admit(text, maxOutside))
	full := c.outside.cut || len(c.outside.addresses) >= maxAddresses // there may be more addresses
	found := slices.DeleteFunc(c.untrustedAddresses(call), func(a Argument) bool {
		return a.Source != Outside && !full || a.Kind == KindCut && len(c.outside.addresses) == 0
	})
	return Facts{Tainted: len(found) > 0, Arguments: found}
}

// untrustedAddresses returns the addresses in a call's arguments that no trusted source contains, and whether there may
// be more.
func (c *Conversation) untrustedAddresses(call Call) []Argument {
	s := search{Conversation: c, budget: maxSteps, call: call, defined: true}
	s.args()
	return slices.DeleteFunc(s.found, func(a Argument) bool {
		isCut := a.Kind == KindCut && !a.Part
		return a.Source.trusted() || a.Kind != KindAddress && a.Kind != KindURL && !isCut
	})
}

// Strings returns the texts in a JSON value, such as the schema of a tool, each in a line.
func Strings(value json.RawMessage) string {
	var out strings.Builder
	d := decoderOf(value)
	for {
		t, err := d.ReadToken()
		if err != nil {
			return out.String()
		}
		if isScalar(t) {
			out.WriteString(t.String() + "\n")
		}
	}
}

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
	size := c.ids
	for _, t := range c.unread {
		size += len(t.text) + unreadSize
	}
	if c.trusted == nil {
		return size
	}
	for name, x := range c.approved {
		size += len(name) + x.size()
	}
	return size + c.system.size() + c.trusted.size() + c.outside.size() + cap(c.reader.tokens)*tokenSize
}

// Full reports whether texts were dropped because of the size limits.
func (c *Conversation) Full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trusted != nil && (c.trusted.cut || c.outside.cut)
}

// Mark sets the point to which Marked returns.
func (c *Conversation) Mark() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mark, c.marking, c.markTainted, c.marked = len(c.unread), true, c.tainted, nil
}

// Marked returns the conversation as it was at Mark. It returns nil if no text from before has been read: reading it
// later costs the same. The system prompt may be a later one. c must not be used afterwards.
func (c *Conversation) Marked() *Conversation {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.marked != nil {
		return c.marked
	}
	if !c.marking || c.trusted == nil || c.trusted.bytes+c.outside.bytes == 0 {
		return nil
	}
	c.unread, c.tainted, c.marking = slices.Clone(c.unread[:c.mark]), c.markTainted, false
	return c
}

// copied returns the conversation at its mark. Indexes only grow, so the copy shares what it can.
func (c *Conversation) copied() *Conversation {
	approved := make(map[string]*index, len(c.approved))
	for name, x := range c.approved {
		approved[name] = x.copied()
	}
	return &Conversation{
		tainted: c.markTainted, ids: c.ids, reader: reader{months: c.reader.months},
		system: c.system, trusted: c.trusted.copied(), outside: c.outside.copied(), approved: approved,
	}
}

func (c *Conversation) read() {
	c.prepare()
	for i, t := range c.unread {
		if c.marking && i == c.mark {
			c.marked, c.marking = c.copied(), false
		}
		if t.tool != "" {
			c.addApproved(t)
		} else if t.of.source.trusted() {
			c.reader.addTrusted(c.trusted, t.of, t.text)
		} else {
			c.reader.addOutside(c.outside, t.of, t.text)
		}
	}
	c.unread, c.mark = nil, 0
}

// Limits of the parameters with approved values. Further parameters, and those with longer names, have none.
const (
	maxParameters = 1000
	maxParameter  = 512 // bytes of the name of a tool and the pointer
)

// addApproved indexes the short values of approved arguments by parameter.
func (c *Conversation) addApproved(t text) {
	leaves, size := 0, 0
	eachScalar([]byte(t.text), func(pointer string, value jsontext.Token, key bool) bool {
		said := value.String()
		leaves++
		if size += len(pointer) + len(said); leaves > maxLeaves || size > maxArgs {
			return false // as in search: no longer arguments are examined
		}
		if key || len(t.tool)+len(pointer) > maxParameter || isLong(said) {
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

// eachScalar calls visit with the strings, numbers and names of members of a JSON value, until visit returns false.
func eachScalar(args json.RawMessage, visit func(pointer string, value jsontext.Token, key bool) bool) {
	d := decoderOf(args)
	for {
		t, err := d.ReadToken()
		if err != nil { // the end; arguments were checked earlier
			return
		}
		if !isScalar(t) {
			continue
		}
		container, n := d.StackIndex(d.StackDepth())
		if !visit(string(d.StackPointer()), t, container == '{' && n%2 == 1) {
			return
		}
	}
}

func decoderOf(value json.RawMessage) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewReader(value), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
}

func isScalar(t jsontext.Token) bool { return t.Kind() == '"' || t.Kind() == '0' }

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

// findAny looks for a value in the trusted texts, then in those from outside.
func (s *search) findAny(pointer string, look func(*index) (origin, bool)) (origin, bool) {
	if of, ok := s.findTrusted(pointer, look); ok {
		return of, true
	}
	return look(s.outside)
}

func (s *search) isDestination(pointer string) bool {
	return slices.ContainsFunc(s.call.Destinations, func(to string) bool {
		steps := strings.Split(pointer, "/")
		for i, w := range strings.Split(to, "/") {
			if i >= len(steps) || w != anyStep && !strings.EqualFold(w, steps[i]) {
				return false
			}
		}
		return true
	})
}

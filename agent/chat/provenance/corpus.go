package provenance

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/farhand/farhand/registry/legible"
)

// corpus finds phrases in texts. It keeps a hash of each token, and for each hash the chain of its places.
type corpus struct {
	hashes []uint64
	joined []bool
	before []int32 // the place before of the same hash; -1: none
	last   map[uint64]place
	texts  []textStart
}

// place is where a token was last seen, and how often it was.
type place struct{ at, count int32 }

type textStart struct {
	at int32 // of the first token
	of origin
}

// origin is a text.
type origin struct {
	source Source
	id     string
}

// add adds the tokens of a text.
func (c *corpus) add(of origin, tokens []token) {
	if c.last == nil {
		c.last = make(map[uint64]place, len(tokens)/4)
	}
	c.texts = append(c.texts, textStart{int32(len(c.hashes)), of})
	for _, t := range tokens {
		c.push(t.hash, t.joined)
	}
	c.push(0, false) // no phrase reaches from one text into the next
}

func (c *corpus) push(hash uint64, joined bool) {
	p, seen := c.last[hash]
	before := int32(-1)
	if seen {
		before = p.at
	}
	c.last[hash] = place{int32(len(c.hashes)), p.count + 1}
	c.hashes, c.joined, c.before = append(c.hashes, hash), append(c.joined, joined), append(c.before, before)
}

// find returns the oldest text that has the phrase. With whole, a phrase that is a part of a longer word does not
// count. Each comparison takes one from budget; found is false, and budget negative, when that is used up.
func (c *corpus) find(phrase []token, whole bool, budget *int) (of origin, found bool) {
	if len(phrase) == 0 {
		return origin{}, false
	}
	rare, least := 0, int32(0)
	for i, t := range phrase {
		p, ok := c.last[t.hash]
		if !ok {
			return origin{}, false
		}
		if least == 0 || p.count < least {
			rare, least = i, p.count
		}
	}
	first := int32(-1)
	for at := c.last[phrase[rare].hash].at; at >= 0; at = c.before[at] {
		if *budget--; *budget < 0 {
			return origin{}, false
		}
		if c.matches(at-int32(rare), phrase, whole, budget) {
			first = at
		}
	}
	if first < 0 {
		return origin{}, false
	}
	return c.textOf(first), true
}

func (c *corpus) matches(at int32, phrase []token, whole bool, budget *int) bool {
	end := at + int32(len(phrase))
	if at < 0 || int(end) > len(c.hashes) {
		return false
	}
	for i, t := range phrase {
		if c.hashes[at+int32(i)] != t.hash {
			*budget -= i
			return false
		}
	}
	*budget -= len(phrase)
	return !whole || !c.joined[at] && !(int(end) < len(c.joined) && c.joined[end])
}

// textOf returns the text that has the token at a place.
func (c *corpus) textOf(at int32) origin {
	low, high := 0, len(c.texts)
	for high-low > 1 {
		if mid := (low + high) / 2; c.texts[mid].at <= at {
			low = mid
		} else {
			high = mid
		}
	}
	return c.texts[low].of
}

// Source says who was the first to name a value.
type Source string

// The sources. The first three are trusted: a value that one of them names is theirs, whoever else names it.
const (
	Person   Source = "person"   // the words of the person
	System   Source = "system"   // the system prompt, and what the gateway itself says
	Approved Source = "approved" // what a person approved before, as this parameter of this tool
	Outside  Source = "outside"  // what a tool, or anybody else, returned
	Model    Source = "model"    // nobody: the model made it
)

// trusted reports whether values of the source may be used for anything.
func (s Source) trusted() bool { return s == Person || s == System || s == Approved }

// Kind says what a value is.
type Kind string

// The kinds. An address is a value that reaches somebody: a URL, a host, an e-mail address, a phone number, an account.
const (
	KindAddress Kind = "address"
	KindURL     Kind = "url" // an address that can be fetched
	KindName    Kind = "name"
	KindNumber  Kind = "number"
	KindDate    Kind = "date"
	KindText    Kind = "text" // longer than a name: its exact words do not matter, the addresses in it do
	KindCut     Kind = "cut"  // was not looked at, because there is too much
)

// Argument says of one value in the arguments of a call where it was seen.
type Argument struct {
	Pointer string // JSON Pointer to the argument
	Value   string // shortened
	Kind    Kind
	Source  Source
	Where   string // the id of the text that names it; empty: none does
	Part    bool   // the value is a part of the argument

	// Field: from outside, and the value was a field of its own there, so it may be a reference to a record.
	Field bool

	// Destination: the value says where something goes.
	Destination bool

	// Record is how the object of JSON begins that has the field. A stranger may have written it.
	Record string

	// Weak: the value is so short or common that finding it somewhere means nothing.
	Weak bool
}

// String says of the value where it was seen, for people and models.
func (a Argument) String() string {
	at := shownPointer(a.Pointer)
	switch {
	case a.Kind == KindCut:
		return "the rest of the arguments, which are too many to look at"
	case a.Value == "":
		return "what " + at + " mean"
	case a.Source == Model:
		return fmt.Sprintf("%q in %s, which is new", a.Value, at)
	case a.Source == Outside && a.Where != "" && a.Record != "":
		return fmt.Sprintf("%q in %s, which only %s has: %s", a.Value, at, a.Where, a.ShownRecord())
	case a.Source == Outside && a.Where != "":
		return fmt.Sprintf("%q in %s, which only %s has", a.Value, at, a.Where)
	default:
		return fmt.Sprintf("%q in %s", a.Value, at)
	}
}

// ShownRecord returns the record as people may read it: on one line, in quotes that it has not itself, with every
// character that hides as its escape; empty if there is none.
func (a Argument) ShownRecord() string {
	if a.Record == "" {
		return ""
	}
	text := strings.ToValidUTF8(a.Record, "")
	more := ""
	if len(a.Record) >= maxRecord {
		more = "…"
	}
	return "`" + strings.ReplaceAll(legible.Expose(strings.Join(strings.Fields(text), " ")), "`", "'") + more + "`"
}

// shownPointer returns a pointer as it stands in a sentence: in quotes, unless it cannot be taken for words of it.
// Names of arguments are whatever the model makes them.
func shownPointer(pointer string) string {
	switch plain := strings.Trim(pointer, pointerSigns) == ""; {
	case pointer == "":
		return "the arguments"
	case plain && len(pointer) <= maxShown:
		return pointer
	default:
		return strconv.Quote(shorten(pointer))
	}
}

// pointerSigns are the characters of the names that most arguments have.
const pointerSigns = "/abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.~"

// Facts is what is known of one call.
type Facts struct {
	Tainted   bool // the conversation has read something from outside
	Arguments []Argument
}

package provenance

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/farhand/farhand/registry/textsafe"
)

// corpus finds phrases in texts. It stores a hash of each token and, for each hash, a chain of its positions.
type corpus struct {
	hashes []uint64
	joined []bool
	before []int32 // the previous position of the same hash; -1: none
	last   map[uint64]place
	texts  []textStart
}

// place is the last position of a token, and its number of occurrences.
type place struct{ at, count int32 }

type textStart struct {
	at int32 // of the first token
	of origin
}

// origin identifies a text.
type origin struct {
	source Source
	id     string
}

func (c *corpus) add(of origin, tokens []token) {
	if c.last == nil {
		c.last = make(map[uint64]place, len(tokens)/4)
	}
	c.texts = append(c.texts, textStart{int32(len(c.hashes)), of})
	for _, t := range tokens {
		c.push(t.hash, t.joined)
	}
	c.push(0, false) // phrases do not span texts
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

// find returns the oldest text with the phrase; if whole is set, not as a part of a longer word. Each comparison takes
// one from budget. With a negative budget, found is false.
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

func (c *corpus) textOf(at int32) origin {
	next := sort.Search(len(c.texts), func(i int) bool { return c.texts[i].at > at })
	return c.texts[next-1].of
}

// Source is the first source of a value.
type Source string

// The sources. A value that one of the first three contains is trusted, even if other sources contain it.
const (
	Person   Source = "person"   // the words of the person
	System   Source = "system"   // the system prompt, and the gateway's own texts
	Approved Source = "approved" // values that a person approved earlier, for the same parameter of the same tool
	Outside  Source = "outside"  // results of tools, and any other untrusted text
	Model    Source = "model"    // no source: the model made the value up
)

func (s Source) trusted() bool { return s == Person || s == System || s == Approved }

// Kind is the kind of a value.
type Kind string

// The kinds. An address reaches a person or system: a URL, a host, an e-mail address, a phone number, an account.
const (
	KindAddress Kind = "address"
	KindURL     Kind = "url" // an address that can be fetched
	KindName    Kind = "name"
	KindNumber  Kind = "number"
	KindDate    Kind = "date"
	KindText    Kind = "text" // longer than a name: only the addresses in it matter, not its exact words
	KindCut     Kind = "cut"  // not examined, because the arguments are too large
)

// Argument is a value in the arguments of a call, with the source where it was seen.
type Argument struct {
	Pointer     string // JSON Pointer to the argument
	Value       string // shortened
	Kind        Kind
	Source      Source
	Where       string // the id of the text that contains it; empty: none
	Part        bool   // the value is a part of the argument; of KindCut: the addresses in the rest were examined
	Field       bool   // it was a separate field outside, so it may be a reference to a record
	Record      string // the start of the JSON object that has the field: untrusted text
	Destination bool   // as of Call.Destinations
	Weak        bool   // so short or common that its occurrence proves nothing
}

// String returns a phrase for people and models that says where the value was seen.
func (a Argument) String() string {
	at := shownPointer(a.Pointer)
	switch {
	case a.Kind == KindCut:
		return "the remaining arguments, which are too many to check"
	case a.Value == "":
		return "the meaning of " + at
	case a.Source == Model:
		return fmt.Sprintf("%q in %s, which is new", a.Value, at)
	case a.Source == Outside && a.Where != "" && a.Record != "":
		return fmt.Sprintf("%q in %s, found only in %s: %s", a.Value, at, a.Where, a.ShownRecord())
	case a.Source == Outside && a.Where != "":
		return fmt.Sprintf("%q in %s, found only in %s", a.Value, at, a.Where)
	default:
		return fmt.Sprintf("%q in %s", a.Value, at)
	}
}

// ShownRecord returns the record, if any, safe to show: on one line, quoted, without invisible characters.
func (a Argument) ShownRecord() string {
	if a.Record == "" {
		return ""
	}
	text := strings.ToValidUTF8(a.Record, "")
	more := ""
	if len(a.Record) >= maxRecord {
		more = "…"
	}
	return "`" + strings.ReplaceAll(textsafe.Expose(strings.Join(strings.Fields(text), " ")), "`", "'") + more + "`"
}

// shownPointer returns a pointer for use in a sentence, quoted unless it is plain, because the model chooses its names.
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

// pointerSigns are the characters of plain argument names.
const pointerSigns = "/abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.~"

// Facts are the findings about one call.
type Facts struct {
	Tainted   bool // the conversation has read text from outside
	Arguments []Argument
}

package provenance

import (
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits of what is stored of the texts of one conversation.
const (
	maxTrusted   = 1 << 20 // bytes of trusted texts; text beyond does not vouch for anything
	maxOutside   = 4 << 20 // bytes of texts from outside; beyond, an unknown name counts as from outside
	maxFields    = 50_000  // fields; beyond, values count as running text
	maxAddresses = 10_000  // addresses from outside that are stored
	maxTokens    = maxOutside
)

// Maximum lengths of a name. Longer values are text.
const (
	maxNameTokens = 12
	maxNameBytes  = 160
)

// index stores the values of one conversation's texts, either the trusted ones or those from outside.
type index struct {
	corpus
	bytes     int
	yaml      int  // bytes that were read as YAML
	cut       bool // texts were dropped
	addresses map[string]origin
	hosts     map[string][]address // trusted URLs by host
	dates     map[date]origin
	numbers   map[string]origin // trusted numbers only; numbers from outside are found as phrases

	fields     map[string]field // from outside only: scalars of JSON, folded
	fieldDates map[date]origin
}

// field is where a scalar was first seen.
type field struct {
	origin
	record string // the start of the object that has it; empty: none
}

// maxRecord is how much of a record is stored, in bytes.
const maxRecord = 160

func newIndex() *index {
	return &index{
		addresses: make(map[string]origin), hosts: make(map[string][]address), dates: make(map[date]origin),
		numbers: make(map[string]origin), fields: make(map[string]field), fieldDates: make(map[date]origin),
	}
}

// copied returns a copy that shares the lists, which only grow: the first addition to the copy moves its own.
func (x *index) copied() *index {
	c := *x
	c.hashes, c.joined, c.before = slices.Clip(x.hashes), slices.Clip(x.joined), slices.Clip(x.before)
	c.last, c.texts = maps.Clone(x.last), slices.Clip(x.texts)
	c.addresses, c.dates, c.numbers = maps.Clone(x.addresses), maps.Clone(x.dates), maps.Clone(x.numbers)
	c.fields, c.fieldDates = maps.Clone(x.fields), maps.Clone(x.fieldDates)
	c.hosts = make(map[string][]address, len(x.hosts))
	for host, of := range x.hosts {
		c.hosts[host] = slices.Clip(of)
	}
	return &c
}

// Approximate memory sizes, in bytes.
const (
	indexSize  = 2 << 10 // with its empty maps
	entrySize  = 100     // a map entry with its key
	tokenSize  = 32
	wordSize   = 16 // of a corpus, for each token
	textSize   = 48 // of a corpus, for each text
	unreadSize = 64 // a text that is not read yet
)

// size returns the approximate memory of an index, in bytes, including the texts that its keys refer to.
func (x *index) size() int {
	entries := len(x.last) + len(x.addresses) + len(x.hosts) + len(x.dates) + len(x.numbers) + len(x.fields) +
		len(x.fieldDates)
	return indexSize + 2*x.bytes + entries*entrySize + len(x.hashes)*wordSize +
		len(x.texts)*textSize
}

// reader reads texts. It reuses its buffers between texts.
type reader struct {
	months map[uint64]int
	tokens []token // of the current text
}

// split returns the tokens of folded text. They are valid until the next call.
func (r *reader) split(s string) []token {
	r.tokens, _ = appendTokens(r.tokens[:0], s, maxTokens)
	return r.tokens
}

// admit returns the part of a text that fits within most bytes.
func (x *index) admit(text string, most int) string {
	if free := most - x.bytes; len(text) > free {
		x.cut = true
		text = text[:max(free, 0)]
	}
	x.bytes += len(text)
	return text
}

// addTrusted indexes the values of a trusted text.
func (r *reader) addTrusted(x *index, of origin, text string) {
	text = x.admit(text, maxTrusted)
	s := fold(text)
	noteAddress := func(a address) bool {
		note(x.addresses, a.text, of)
		if a.host != "" {
			x.hosts[a.host] = append(x.hosts[a.host], a)
		}
		return true
	}
	if plain := unfolded(text); plain != "" {
		eachAddress(plain, r.split(plain), noteAddress)
	}
	tokens := r.split(s)
	x.add(of, tokens)
	eachAddress(s, tokens, noteAddress)
	r.dates(s, tokens, func(d date) { note(x.dates, d, of) })
	eachNumber(s, func(n string, whole bool) {
		if !whole {
			return
		}
		for _, v := range canonNumbers(n) {
			note(x.numbers, v, of)
		}
	})
}

// addOutside indexes the values of a text from outside. JSON has fields; its longer strings are also running text.
func (r *reader) addOutside(x *index, of origin, text string) {
	text = x.admit(text, maxOutside)
	rest := text
	r.addYAML(x, of, text)
	if t := strings.TrimLeft(text, " \t\r\n"); t != "" && (t[0] == '{' || t[0] == '[') {
		rest = r.addJSON(x, of, t)
	}
	if rest != "" {
		r.addProse(x, of, rest)
	}
}

// addProse indexes running text and its encoded parts.
func (r *reader) addProse(x *index, of origin, text string) {
	r.addRunning(x, of, fold(text))
	if plain, _ := decoded(text); plain != "" {
		r.addRunning(x, of, fold(plain))
	}
}

func (r *reader) addRunning(x *index, of origin, s string) {
	tokens := r.split(s)
	x.add(of, tokens)
	noteAddresses(x, of, s, tokens)
	r.dates(s, tokens, func(d date) { note(x.dates, d, of) })
}

func noteAddresses(x *index, of origin, s string, tokens []token) {
	if len(x.addresses) < maxAddresses {
		eachAddress(s, tokens, func(a address) bool {
			note(x.addresses, a.text, of)
			return len(x.addresses) < maxAddresses
		})
	}
}

// addJSON indexes the fields of JSON, and returns the rest of the text after the valid JSON.
func (r *reader) addJSON(x *index, of origin, text string) (rest string) {
	d := jsontext.NewDecoder(strings.NewReader(text), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
	var objects []int64 // offsets of open objects
	for {
		before := d.InputOffset()
		t, err := d.ReadToken()
		if err == io.EOF {
			return ""
		}
		if err != nil {
			return text[before:]
		}
		f := field{origin: of}
		if n := len(objects); n > 0 {
			f.record = text[objects[n-1]:min(int64(len(text)), objects[n-1]+maxRecord)]
		}
		switch t.Kind() {
		case '{':
			objects = append(objects, d.InputOffset()-1)
		case '}':
			objects = objects[:len(objects)-1]
		case '"':
			if container, n := d.StackIndex(d.StackDepth()); container == '{' && n%2 == 1 {
				r.addProse(x, of, t.String()) // member names often are what the call asked for
			} else {
				r.addString(x, f, t.String())
			}
		case '0':
			if n, ok := exactNumber(t.String()); ok && len(x.fields) < maxFields {
				note(x.fields, "#"+n, f)
			}
		}
	}
}

// addString indexes a string of JSON. A short string is a field.
func (r *reader) addString(x *index, f field, text string) {
	if s, ok := r.addField(x, f, text); ok {
		tokens := r.split(s)
		if len(tokens) < 2 {
			noteAddresses(x, f.origin, s, tokens)
			return
		}
		if _, ok := r.dateOf(s, tokens); ok {
			return
		}
	}
	r.addProse(x, f.origin, text)
}

// addField indexes a value as a field, and returns it folded. A value that is too long is no field.
func (r *reader) addField(x *index, f field, text string) (folded string, ok bool) {
	s := strings.TrimSpace(fold(text))
	if len(s) > maxNameBytes || len(x.fields) >= maxFields {
		return s, false
	}
	note(x.fields, s, f)
	if n, ok := exactNumber(s); ok && s != "" {
		note(x.fields, "#"+n, f)
	}
	if d, ok := r.dateOf(s, r.split(s)); ok {
		note(x.fieldDates, d, f.origin)
	}
	return s, true
}

func note[K comparable, V any](m map[K]V, key K, of V) {
	if _, ok := m[key]; !ok {
		m[key] = of
	}
}

// dateOf returns the date that folded text consists of, with or without a time.
func (r *reader) dateOf(s string, tokens []token) (found date, ok bool) {
	if len(s) > maxDate {
		return date{}, false
	}
	r.dates(s, tokens, func(d date) {
		if !ok {
			found, ok = d, true
		}
	})
	for _, t := range tokens {
		w := t.text(s)
		if ok && countDigits(w) == 0 && r.months[t.hash] == 0 && !strings.Contains(dateWords, " "+w+" ") {
			return date{}, false
		}
	}
	return found, ok
}

// maxDate is the maximum length of a date with its time, in bytes.
const maxDate = 40

// dateWords are words that may occur in a date with its time.
const dateWords = " the of at am pm t z utc gmt cet uhr de um mon tue wed thu fri sat sun "

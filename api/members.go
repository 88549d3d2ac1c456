package api

import (
	"bytes"
	"encoding/json"

	"github.com/farhand/farhand/registry"
)

// uniqueKeys fails at the first key of a JSON text that its object already has. The text must be valid JSON.
func uniqueKeys(text []byte) error {
	w := keyWalk{text: text}
	return w.value(nil)
}

// member is one field of an object: its name as it is meant, its value as it was sent.
type member struct {
	name  []byte
	value json.RawMessage
}

// memberList is what members returns: few enough fields to look through.
type memberList []member

func (o memberList) get(name string) (json.RawMessage, bool) {
	for _, m := range o {
		if string(m.name) == name {
			return m.value, true
		}
	}
	return nil, false
}

// members returns the fields of an object that checkJSON has seen, nil if text is no object. Every call is read with it, so
// it walks the bytes instead of decoding them.
func members(text []byte) memberList {
	w := keyWalk{text: text}
	w.skipSpace()
	if text[w.pos] != '{' {
		return nil
	}
	fields := make(memberList, 0, 4)
	if w.empty() {
		return fields
	}
	for {
		w.skipSpace()
		name := unquoted(w.str())
		w.skipSpace()
		w.pos++ // the colon
		w.skipSpace()
		start := w.pos
		w.skip()
		fields = append(fields, member{name, text[start:w.pos:w.pos]})
		if !w.next() {
			return fields
		}
	}
}

// skip walks over one value without looking at its keys.
func (w *keyWalk) skip() {
	for depth := 0; ; {
		w.skipSpace()
		switch c := w.text[w.pos]; c {
		case '"':
			w.str()
		case '{', '[':
			depth++
			w.pos++
			continue
		case '}', ']':
			depth--
			w.pos++
		case ',', ':':
			w.pos++
			continue
		default:
			for w.pos < len(w.text) && !endsLiteral(w.text[w.pos]) {
				w.pos++
			}
		}
		if depth == 0 {
			return
		}
	}
}

// keyWalk is a position in a valid JSON text.
type keyWalk struct {
	text []byte
	pos  int
}

// keyPath is the way to a value, innermost first.
type keyPath struct {
	key    []byte
	parent *keyPath
}

func (p *keyPath) String() string {
	if p == nil {
		return ""
	}
	return join(p.parent.String(), string(unquoted(p.key)))
}

func (w *keyWalk) skipSpace() {
	for w.pos < len(w.text) && (w.text[w.pos] == ' ' || w.text[w.pos] == '\n' || w.text[w.pos] == '\t' || w.text[w.pos] == '\r') {
		w.pos++
	}
}

// value walks over one value.
func (w *keyWalk) value(at *keyPath) error {
	w.skipSpace()
	switch w.text[w.pos] {
	case '{':
		return w.object(at)
	case '[':
		return w.array(at)
	case '"':
		w.str()
	default:
		for w.pos < len(w.text) && !endsLiteral(w.text[w.pos]) {
			w.pos++
		}
	}
	return nil
}

func endsLiteral(b byte) bool {
	switch b {
	case ',', ']', '}', ' ', '\n', '\t', '\r':
		return true
	default:
		return false
	}
}

// str walks over a string and returns it with its quotes.
func (w *keyWalk) str() []byte {
	start := w.pos
	for w.pos++; w.text[w.pos] != '"'; w.pos++ {
		if w.text[w.pos] == '\\' {
			w.pos++
		}
	}
	w.pos++
	return w.text[start:w.pos]
}

// next walks over a comma and reports true, or over the closing bracket and reports false.
func (w *keyWalk) next() bool {
	w.skipSpace()
	w.pos++
	return w.text[w.pos-1] == ','
}

// empty walks over the opening bracket, and over the closing one if nothing is between them.
func (w *keyWalk) empty() bool {
	w.pos++
	w.skipSpace()
	if c := w.text[w.pos]; c == '}' || c == ']' {
		w.pos++
		return true
	}
	return false
}

func (w *keyWalk) array(at *keyPath) error {
	if w.empty() {
		return nil
	}
	for {
		if err := w.value(at); err != nil || !w.next() {
			return err
		}
	}
}

func (w *keyWalk) object(at *keyPath) error {
	if w.empty() {
		return nil
	}
	seen := make(map[string]bool)
	for {
		w.skipSpace()
		inner := keyPath{key: w.str(), parent: at}
		name := string(unquoted(inner.key))
		if seen[name] {
			return registry.Errorf(registry.CodeInvalidRequest, "The field %.120q appears twice.", inner.String())
		}
		seen[name] = true
		w.skipSpace()
		w.pos++ // the colon
		if err := w.value(&inner); err != nil || !w.next() {
			return err
		}
	}
}

// unquoted returns the text of a JSON string.
func unquoted(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	var s string
	if json.Unmarshal(quoted, &s) != nil { // cannot happen: the text is valid JSON
		return quoted
	}
	return []byte(s)
}

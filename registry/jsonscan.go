package registry

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// CheckJSON reports whether text is one JSON value that no two parsers read differently: valid grammar and UTF-8, at
// most maxDepth levels of objects and arrays, and no key twice in one object. It walks the text once, and leaves the rare rest
// undecided: false means that the text must be looked at with care, be it only for an escape in a key or an object of
// many fields.
func CheckJSON(text []byte, maxDepth int) bool {
	_, _, ok := scanJSON(text, maxDepth, false)
	return ok
}

// DecodeJSON decodes a text that CheckJSON approves of, as encoding/json does with UseNumber: objects become
// map[string]any and numbers json.Number. depth is how many levels of them there are. It is no less strict, and leaves the
// same texts undecided.
func DecodeJSON(text []byte, maxDepth int) (value any, depth int, ok bool) {
	return scanJSON(text, maxDepth, true)
}

func scanJSON(text []byte, maxDepth int, build bool) (value any, depth int, ok bool) {
	if !utf8.Valid(text) {
		return nil, 0, false
	}
	s := jsonScan{text: text, maxDepth: maxDepth, build: build}
	value, ok = s.value()
	s.space()
	return value, s.deepest, ok && s.pos == len(text)
}

// jsonScan is a position in a text that is valid UTF-8. Its methods report false where it is not JSON, or not of the kind
// that is decided here.
type jsonScan struct {
	text     []byte
	pos      int
	level    int // of nesting, here
	deepest  int
	maxDepth int
	build    bool // the value is wanted, not only whether there is one
}

func (s *jsonScan) space() {
	for s.pos < len(s.text) {
		switch s.text[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// take walks over c, and the white space before it, if it is next.
func (s *jsonScan) take(c byte) bool {
	s.space()
	if s.pos == len(s.text) || s.text[s.pos] != c {
		return false
	}
	s.pos++
	return true
}

func (s *jsonScan) value() (any, bool) {
	s.space()
	if s.pos == len(s.text) {
		return nil, false
	}
	switch s.text[s.pos] {
	case '{', '[':
		if s.level++; s.level > s.maxDepth {
			return nil, false
		}
		s.deepest = max(s.deepest, s.level)
		defer func() { s.level-- }()
		if s.text[s.pos] == '[' {
			return s.array()
		}
		return s.object()
	case '"':
		return s.string()
	case 't':
		return true, s.word("true")
	case 'f':
		return false, s.word("false")
	case 'n':
		return nil, s.word("null")
	default:
		return s.number()
	}
}

func (s *jsonScan) word(w string) bool {
	if !bytes.HasPrefix(s.text[s.pos:], []byte(w)) {
		return false
	}
	s.pos += len(w)
	return true
}

// fewKeys is how many keys of one object are compared with each other. An object that has more is left undecided.
const fewKeys = 16

func (s *jsonScan) object() (any, bool) {
	s.pos++
	var fields map[string]any
	if s.build {
		fields = make(map[string]any)
	}
	if s.take('}') {
		return fields, true
	}
	var keys [fewKeys][]byte
	for n := 0; n < fewKeys; n++ {
		key, ok := s.key()
		if !ok {
			return nil, false
		}
		for _, earlier := range keys[:n] {
			if bytes.Equal(earlier, key) {
				return nil, false
			}
		}
		keys[n] = key
		value, ok := s.value()
		if !ok {
			return nil, false
		}
		if s.build {
			fields[string(key)] = value
		}
		if !s.take(',') {
			return fields, s.take('}')
		}
	}
	return nil, false
}

// key walks over a key without escapes and the colon behind it.
func (s *jsonScan) key() ([]byte, bool) {
	s.space()
	if s.pos == len(s.text) || s.text[s.pos] != '"' {
		return nil, false
	}
	quoted, plain := s.quoted()
	if !plain {
		return nil, false
	}
	return quoted[1 : len(quoted)-1], s.take(':')
}

func (s *jsonScan) array() (any, bool) {
	s.pos++
	items := []any{}
	if s.take(']') {
		return items, true
	}
	for {
		value, ok := s.value()
		if !ok {
			return nil, false
		}
		if s.build {
			items = append(items, value)
		}
		if !s.take(',') {
			return items, s.take(']')
		}
	}
}

func (s *jsonScan) string() (any, bool) {
	quoted, plain := s.quoted()
	switch {
	case quoted == nil:
		return nil, false
	case plain && s.build:
		return string(quoted[1 : len(quoted)-1]), true
	case plain:
		return nil, true
	case !s.build:
		return nil, json.Valid(quoted)
	}
	var value string
	err := json.Unmarshal(quoted, &value)
	return value, err == nil
}

// quoted walks over a string and returns it with its quotes, nil if it does not end or holds a control character. It is
// plain if nothing in it is escaped; what is escaped, and whether rightly, is the caller's to find out.
func (s *jsonScan) quoted() (quoted []byte, plain bool) {
	plain = true
	for i := s.pos + 1; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '"':
			quoted = s.text[s.pos : i+1]
			s.pos = i + 1
			return quoted, plain
		case c == '\\':
			plain = false
			i++
		case c < ' ':
			return nil, false
		}
	}
	return nil, false
}

// number walks over a number as RFC 8259 writes them.
func (s *jsonScan) number() (any, bool) {
	start := s.pos
	if s.text[s.pos] == '-' {
		s.pos++
	}
	if whole := s.digits(); whole == 0 || whole > 1 && s.text[s.pos-whole] == '0' {
		return nil, false
	}
	if s.pos < len(s.text) && s.text[s.pos] == '.' {
		s.pos++
		if s.digits() == 0 {
			return nil, false
		}
	}
	if s.pos < len(s.text) && s.text[s.pos]|0x20 == 'e' {
		s.pos++
		if s.pos < len(s.text) && (s.text[s.pos] == '+' || s.text[s.pos] == '-') {
			s.pos++
		}
		if s.digits() == 0 {
			return nil, false
		}
	}
	if !s.build {
		return nil, true
	}
	return json.Number(s.text[start:s.pos]), true
}

// digits walks over digits and returns how many there were.
func (s *jsonScan) digits() (n int) {
	for s.pos < len(s.text) && s.text[s.pos] >= '0' && s.text[s.pos] <= '9' {
		s.pos++
		n++
	}
	return n
}

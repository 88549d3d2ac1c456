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
	_, _, ok := readStrictly(text, maxDepth, false)
	return ok
}

// DecodeJSON decodes a text that CheckJSON approves of, as encoding/json does with UseNumber: objects become
// map[string]any and numbers json.Number. depth is how many levels of them there are. It is no less strict, and leaves the
// same texts undecided.
func DecodeJSON(text []byte, maxDepth int) (value any, depth int, ok bool) {
	return readStrictly(text, maxDepth, true)
}

func readStrictly(text []byte, maxDepth int, build bool) (value any, depth int, ok bool) {
	if !utf8.Valid(text) {
		return nil, 0, false
	}
	s := strictScan{jsonScan: jsonScan{text: text}, maxDepth: maxDepth, build: build}
	value, ok = s.value()
	s.space()
	return value, s.deepest, ok && s.at == len(text)
}

// strictScan walks over values, not only over what they are made of. Its methods report false where the text is not JSON, or not
// of the kind that is decided here.
type strictScan struct {
	jsonScan
	level    int // of nesting, here
	deepest  int
	maxDepth int
	build    bool // the value is wanted, not only whether there is one
}

func (s *strictScan) value() (any, bool) {
	s.space()
	from := s.at
	closing := s.begin()
	if closing == 0 {
		if !s.scalar() {
			return nil, false
		}
		if !s.build {
			return nil, true
		}
		return decodeScalar(s.text[from:s.at])
	}
	if s.level++; s.level > s.maxDepth {
		return nil, false
	}
	s.deepest = max(s.deepest, s.level)
	defer func() { s.level-- }()
	if closing == ']' {
		return s.array()
	}
	return s.object()
}

func decodeScalar(text []byte) (any, bool) {
	switch text[0] {
	case 't', 'f':
		return text[0] == 't', true
	case 'n':
		return nil, true
	case '"':
		if bytes.IndexByte(text, '\\') < 0 {
			return string(text[1 : len(text)-1]), true
		}
		var value string
		err := json.Unmarshal(text, &value)
		return value, err == nil
	default:
		return json.Number(text), true
	}
}

// fewKeys is how many keys of one object are compared with each other. An object that has more is left undecided.
const fewKeys = 16

func (s *strictScan) object() (any, bool) {
	var fields map[string]any
	if s.build {
		fields = make(map[string]any)
	}
	if s.space(); s.skip('}') {
		return fields, true
	}
	var keys [fewKeys][]byte
	for n := range keys {
		key := s.plainKey()
		if key == nil {
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
			fields[string(key[1:len(key)-1])] = value
		}
		if s.space(); !s.skip(',') {
			return fields, s.skip('}')
		}
	}
	return nil, false
}

// plainKey skips a key and its colon. It returns the key with its quotes, nil if there is an escape in it.
func (s *strictScan) plainKey() []byte {
	s.space()
	from := s.at
	if s.peek() != '"' || !s.str() {
		return nil
	}
	key := s.text[from:s.at]
	if s.space(); !s.skip(':') || bytes.IndexByte(key, '\\') >= 0 {
		return nil
	}
	return key
}

func (s *strictScan) array() (any, bool) {
	items := []any{}
	if s.space(); s.skip(']') {
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
		if s.space(); !s.skip(',') {
			return items, s.skip(']')
		}
	}
}

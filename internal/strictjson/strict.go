package strictjson

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// Fault is why two parsers might read a JSON text differently, or not at all. The zero value is none.
type Fault int

// Faults of a text, as Check tells them apart.
const (
	Malformed Fault = iota + 1
	NotUTF8
	TooDeep
	KeyTwice // one object has it twice
)

// Check tells whether text is one JSON value that no two parsers read differently: valid grammar and UTF-8, at most
// maxDepth levels of objects and arrays, and no key twice in one object. Else it returns the first fault, and the path of
// the key if that is the fault.
func Check(text []byte, maxDepth int) (fault Fault, path string) {
	_, s := readStrictly(text, maxDepth, false)
	return s.fault, s.path
}

// Decode decodes a text in which Check finds no fault, as encoding/json does with UseNumber: objects become
// map[string]any and numbers json.Number. depth is how many levels of them there are.
func Decode(text []byte, maxDepth int) (value any, depth int, ok bool) {
	value, s := readStrictly(text, maxDepth, true)
	return value, s.deepest, s.fault == 0
}

func readStrictly(text []byte, maxDepth int, build bool) (any, strictScan) {
	s := strictScan{jsonScan: jsonScan{text: text}, maxDepth: maxDepth, build: build}
	if !utf8.Valid(text) {
		s.fault = NotUTF8
		return nil, s
	}
	value := s.value()
	if s.space(); s.fault == 0 && s.at < len(text) {
		s.fault = Malformed
	}
	return value, s
}

// strictScan walks over values, not only over what they are made of. It stands still at the first fault.
type strictScan struct {
	jsonScan
	level    int // of nesting, here
	deepest  int
	maxDepth int
	build    bool // the value is wanted, not only whether there is one
	fault    Fault
	path     string // of a key that is there twice
}

func (s *strictScan) fail(fault Fault) any {
	s.fault = fault
	return nil
}

func (s *strictScan) value() any {
	s.space()
	from := s.at
	switch closing := s.begin(); {
	case closing == 0 && !s.scalar():
		return s.fail(Malformed)
	case closing == 0 && s.build:
		return decodeScalar(s.text[from:s.at])
	case closing == 0:
		return nil
	case s.level == s.maxDepth:
		return s.fail(TooDeep)
	default:
		s.level++
		s.deepest = max(s.deepest, s.level)
		defer func() { s.level-- }()
		if closing == ']' {
			return s.array()
		}
		return s.object()
	}
}

func decodeScalar(text []byte) any {
	switch text[0] {
	case 't', 'f':
		return text[0] == 't'
	case 'n':
		return nil
	case '"':
		return string(unquoted(text))
	default:
		return json.Number(text)
	}
}

func (s *strictScan) object() any {
	var fields map[string]any
	if s.build {
		fields = make(map[string]any)
	}
	if s.space(); s.skip('}') {
		return fields
	}
	var keys keySet
	for {
		s.space()
		from := s.at
		if s.peek() != '"' || !s.str() {
			return s.fail(Malformed)
		}
		key := unquoted(s.text[from:s.at])
		if s.space(); !s.skip(':') {
			return s.fail(Malformed)
		}
		if !keys.add(key) {
			s.path = string(key)
			return s.fail(KeyTwice)
		}
		value := s.value()
		if s.fault == KeyTwice {
			s.path = string(key) + "." + s.path
		}
		if s.fault != 0 {
			return nil
		}
		if s.build {
			fields[string(key)] = value
		}
		if s.space(); !s.skip(',') {
			break
		}
	}
	if !s.skip('}') {
		return s.fail(Malformed)
	}
	return fields
}

func (s *strictScan) array() any {
	items := []any{}
	if s.space(); s.skip(']') {
		return items
	}
	for {
		value := s.value()
		if s.fault != 0 {
			return nil
		}
		if s.build {
			items = append(items, value)
		}
		if s.space(); !s.skip(',') {
			break
		}
	}
	if !s.skip(']') {
		return s.fail(Malformed)
	}
	return items
}

// fewKeys is up to how many keys it is faster to look through all of them.
const fewKeys = 16

// keySet is the keys of one object.
type keySet struct {
	few  [fewKeys][]byte
	n    int
	many map[string]bool // all of them, once they are not few
}

// add reports false if the key is there already.
func (k *keySet) add(key []byte) bool {
	if k.many == nil && k.n < fewKeys {
		for _, earlier := range k.few[:k.n] {
			if bytes.Equal(earlier, key) {
				return false
			}
		}
		k.few[k.n] = key
		k.n++
		return true
	}
	if k.many == nil {
		k.many = make(map[string]bool, 2*fewKeys)
		for _, earlier := range k.few {
			k.many[string(earlier)] = true
		}
	}
	if k.many[string(key)] {
		return false
	}
	k.many[string(key)] = true
	return true
}

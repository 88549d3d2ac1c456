package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// Limits of the source of a schema. They are checked before compiling, because compile time grows with the square of
// some, and memory with the product of others. Real schemas stay far below.
const (
	maxNodes        = 4096      // objects and booleans: each may be a subschema
	maxPointerBytes = 512 << 10 // of the JSON pointers to all of them
	maxIDs          = 16        // $id, id
	maxIDBytes      = 512       // of each
	maxOddRefs      = 64        // references to anything but #/$defs/name and #/definitions/name
	maxSchemaDigits = 400       // characters of a number; the largest float64 written out has 309
)

// Limits of any number, in a schema and in arguments: exact arithmetic on 1e1000000 takes milliseconds.
const (
	maxExponent = 999
	maxDigits   = 1000
)

var (
	errExponent = errors.New("a number has an exponent beyond 999")
	errDigits   = errors.New("a number has more than 1000 characters")
)

// source holds the counts of a schema before it is compiled.
type source struct {
	nodes    int
	pointers int // bytes
	ids      int
	oddRefs  int
}

// survey counts a part of a schema. pointer is the length of its JSON pointer in bytes.
func (s *source) survey(v any, pointer int) error {
	switch v := v.(type) {
	case map[string]any:
		if err := s.node(pointer); err != nil {
			return err
		}
		for name, child := range v {
			if err := s.keyword(name, child); err != nil {
				return err
			}
			if err := s.survey(child, pointer+1+len(name)); err != nil {
				return err
			}
		}
	case []any:
		for i, child := range v {
			if err := s.survey(child, pointer+1+decimals(i)); err != nil {
				return err
			}
		}
	case bool:
		return s.node(pointer)
	case json.Number:
		if len(v) > maxSchemaDigits {
			return beyond("a number has more than %d characters", maxSchemaDigits)
		}
		return checkNumber(v)
	}
	return nil
}

func (s *source) node(pointer int) error {
	if s.nodes++; s.nodes > maxNodes {
		return beyond("a schema may have at most %d subschemas", maxNodes)
	}
	if s.pointers += pointer; s.pointers > maxPointerBytes {
		return beyond("its property names are too long, or nested too deep: the pointers to its subschemas may have "+
			"%d bytes together", maxPointerBytes)
	}
	return nil
}

// keyword counts the keywords that make compiling slow.
func (s *source) keyword(name string, value any) error {
	text, ok := value.(string)
	if !ok {
		return nil
	}
	switch name {
	case "$id", "id":
		if s.ids++; s.ids > maxIDs || len(text) > maxIDBytes {
			return beyond("a schema may have at most %d ids of at most %d bytes", maxIDs, maxIDBytes)
		}
	case "$ref", "$dynamicRef", "$recursiveRef":
		if plainRef(text) {
			return nil
		}
		if s.oddRefs++; s.oddRefs > maxOddRefs {
			return beyond("at most %d references may lead elsewhere than to #/$defs/name", maxOddRefs)
		}
	}
	return nil
}

// plainRef reports whether a reference leads to a definition at the root of the schema, or to the root.
func plainRef(ref string) bool {
	for _, prefix := range []string{"#/$defs/", "#/definitions/"} {
		if name, ok := strings.CutPrefix(ref, prefix); ok && !strings.Contains(name, "/") {
			return true
		}
	}
	return ref == "#"
}

// decimals returns the number of decimal digits of i.
func decimals(i int) int {
	n := 1
	for ; i > 9; i /= 10 {
		n++
	}
	return n
}

// checkNumbers rejects numbers that make exact arithmetic expensive.
func checkNumbers(v any) error {
	switch v := v.(type) {
	case map[string]any:
		for _, child := range v {
			if err := checkNumbers(child); err != nil {
				return err
			}
		}
	case []any:
		for _, child := range v {
			if err := checkNumbers(child); err != nil {
				return err
			}
		}
	case json.Number:
		return checkNumber(v)
	}
	return nil
}

func checkNumber(n json.Number) error {
	if len(n) <= 3 { // most numbers; none has a large exponent
		return nil
	}
	if i := strings.IndexAny(string(n), "eE"); i >= 0 {
		if exp, err := strconv.Atoi(string(n[i+1:])); err != nil || exp > maxExponent || exp < -maxExponent {
			return errExponent
		}
	}
	if len(n) > maxDigits {
		return errDigits
	}
	return nil
}

// decodedSize estimates the memory of a decoded JSON text, in bytes, without decoding it.
func decodedSize(text []byte) int {
	const (
		objectBytes = 350 // with up to eight fields
		valueBytes  = 60
	)
	objects, values := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i += stringLength(text[i:]) - 1
		case '{':
			objects++
		case ',', ':', '[':
			values++
		}
	}
	return len(text) + objects*objectBytes + values*valueBytes
}

// stringLength returns the length of the string at the start of text, including quotes.
func stringLength(text []byte) int {
	for end := 1; ; end++ {
		next := bytes.IndexByte(text[end:], '"')
		if next < 0 {
			return len(text)
		}
		end += next
		escapes := 0
		for text[end-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return end + 1
		}
	}
}

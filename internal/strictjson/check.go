// Package strictjson reads untrusted JSON. It accepts only what all parsers read alike (I-JSON, RFC 7493): valid
// grammar, valid UTF-8, no lone surrogates, and no duplicate name in one object, at any depth. Check returns the fault
// of a text, Decode decodes it, Members and Items split an object or an array without copying. The grammar is that of
// encoding/json/jsontext.
package strictjson

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Fault is why a text is rejected. The zero value is no fault.
type Fault int

// The faults.
const (
	Malformed Fault = iota + 1
	NotUTF8
	TooDeep
	NameTwice // an object has a name twice
)

// Problem is a fault and its place.
type Problem struct {
	Fault Fault
	Path  string // of the duplicate name, its parts separated by dots
	Err   error  // the error of the parser, nil if it was not used
}

// Valid reports whether text is one JSON value without a fault.
func Valid(text []byte) bool { return jsontext.Value(text).IsValid() }

// Check returns the first fault of a text, which must be one JSON value nested at most maxDepth levels deep.
func Check(text []byte, maxDepth int) Problem {
	if p := precheck(text, maxDepth); p.Fault != 0 || Valid(text) {
		return p
	}
	return Explain(parse(text))
}

func parse(text []byte) error {
	r := newReader(text)
	defer r.free()
	if _, err := r.ReadValue(); err != nil {
		return err
	}
	return r.end()
}

// precheck finds the faults that need no parser.
func precheck(text []byte, maxDepth int) Problem {
	switch {
	case !utf8.Valid(text):
		return Problem{Fault: NotUTF8}
	case Depth(text) > maxDepth:
		return Problem{Fault: TooDeep}
	default:
		return Problem{}
	}
}

// Explain returns the fault that an error of this package stands for.
func Explain(err error) Problem {
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) && errors.Is(err, jsontext.ErrDuplicateName) {
		path := slices.Collect(syntax.JSONPointer.Tokens())
		return Problem{Fault: NameTwice, Path: strings.Join(path, "."), Err: err}
	}
	return Problem{Fault: Malformed, Err: err}
}

// Depth returns how deep objects and arrays nest in a text, without parsing it. Brackets in strings do not count. For a
// text that is not JSON the result is an upper bound of the depth that a parser meets.
func Depth(text []byte) int {
	depth, deepest := 0, 0
	var s inString
	for _, b := range text {
		switch {
		case s.has(b):
		case b == '{' || b == '[':
			depth++
			deepest = max(deepest, depth)
		case b == '}' || b == ']':
			depth--
		}
	}
	return deepest
}

// Values returns about how many values a text has, without parsing it. It counts opening brackets and commas outside
// strings. A tree of the text has at most one node more.
func Values(text []byte) (n int) {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{', '[', ',':
			n++
		case '"':
			i = stringEnd(text, i+1)
		}
	}
	return n
}

// stringEnd returns the place of the quote that ends the string whose text begins at begin, or the end of the text. It
// is several times as fast as a look at each byte.
func stringEnd(text []byte, begin int) int {
	for i := begin; ; {
		next := bytes.IndexByte(text[i:], '"')
		if next < 0 {
			return len(text)
		}
		end := i + next
		escapes := end
		for escapes > begin && text[escapes-1] == '\\' {
			escapes--
		}
		if (end-escapes)%2 == 0 {
			return end
		}
		i = end + 1
	}
}

// inString tracks whether a text is inside a string. It gets the bytes one by one.
type inString struct{ open, escaped bool }

// has takes the next byte, and reports whether it belongs to a string, including the quotes.
func (s *inString) has(b byte) bool {
	switch {
	case s.escaped:
		s.escaped = false
	case s.open && b == '\\':
		s.escaped = true
	case b == '"':
		s.open = !s.open
	default:
		return s.open
	}
	return true
}

type reader struct {
	*jsontext.Decoder
	text   []byte
	source bytes.Buffer
}

var readers = sync.Pool{New: func() any { return &reader{Decoder: new(jsontext.Decoder)} }}

// newReader returns a parser, which must be freed. It does not copy the text.
func newReader(text []byte, options ...jsontext.Options) *reader {
	r := readers.Get().(*reader)
	r.text, r.source = text, *bytes.NewBuffer(text)
	r.Reset(&r.source, options...)
	return r
}

// keptText is the longest text, in bytes, whose parser is reused. A parser keeps the memory that it has grown to.
const keptText = 64 << 10

func (r *reader) free() {
	if len(r.text) > keptText {
		return
	}
	r.text, r.source = nil, bytes.Buffer{}
	r.Reset(&r.source)
	readers.Put(r)
}

// value returns the next value as a part of the text. The decoder's own copy would not outlive its next read.
func (r *reader) value() ([]byte, error) {
	v, err := r.ReadValue()
	if err != nil {
		return nil, err
	}
	end := int(r.InputOffset())
	return r.text[end-len(v) : end : end], nil
}

func (r *reader) end() error {
	_, err := r.ReadToken()
	switch {
	case err == io.EOF:
		return nil
	case err == nil:
		return errors.New("there is text after the value")
	default:
		return err
	}
}

// Digest identifies a JSON value by its canonical form: object keys sorted, no insignificant space.
func Digest(parts ...json.RawMessage) (string, error) {
	h := sha256.New()
	for _, p := range parts {
		canonical, err := Canonical(p)
		if err != nil {
			return "", err
		}
		h.Write(canonical)
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Canonical rewrites JSON with sorted keys and no space. Numbers keep their text.
func Canonical(text json.RawMessage) (json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

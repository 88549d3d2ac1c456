package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Value is one JSON value that was checked and has no fault. A function that takes a Value need not check it again. The
// zero value holds no value. Its bytes are read-only.
type Value struct{ text json.RawMessage }

// Parse checks a text. The Value shares its memory.
func Parse(text []byte) (Value, error) {
	if Valid(text) {
		return Value{bytes.TrimSpace(text)}, nil
	}
	return Value{}, parse(text)
}

// ReplaceHalves returns a text in which every lone half of a surrogate pair is replaced by U+FFFD. ok is false if the
// result still has a fault.
func ReplaceHalves(text []byte) (replaced []byte, ok bool) {
	replaced, err := jsontext.AppendFormat(nil, text, jsontext.AllowInvalidUTF8(true))
	return replaced, err == nil && Valid(replaced)
}

// Must is Parse for texts of the program itself. It panics if Parse fails.
func Must(text string) Value {
	v, err := Parse([]byte(text))
	if err != nil {
		panic(err)
	}
	return v
}

// Checked returns the value of a member that Members has checked. It must not be called for a member that
// LenientMembers returned.
func (m Member) Checked() Value { return Value{m.Value} }

// Raw returns the text, nil if there is none.
func (v Value) Raw() json.RawMessage { return v.text }

// Len returns how many bytes the text has.
func (v Value) Len() int { return len(v.text) }

// IsZero reports whether there is no value.
func (v Value) IsZero() bool { return len(v.text) == 0 }

// IsObject reports whether it is an object.
func (v Value) IsObject() bool { return len(v.text) > 0 && v.text[0] == '{' }

// IsString reports whether it is a string.
func (v Value) IsString() bool { return len(v.text) > 0 && v.text[0] == '"' }

// String returns the text.
func (v Value) String() string { return string(v.text) }

// Compact returns the value without insignificant white space.
func (v Value) Compact() Value {
	var b bytes.Buffer
	if json.Compact(&b, v.text) != nil { // cannot happen: it was checked
		return v
	}
	return Value{b.Bytes()}
}

// Clone returns a copy that shares no memory with v.
func (v Value) Clone() Value { return Value{bytes.Clone(v.text)} }

// MarshalJSON implements json.Marshaler.
func (v Value) MarshalJSON() ([]byte, error) { return v.text.MarshalJSON() }

// UnmarshalJSON implements json.Unmarshaler. It rejects JSON that encoding/json accepts and this package does not.
func (v *Value) UnmarshalJSON(text []byte) error {
	parsed, err := Parse(bytes.Clone(text))
	if err == nil {
		*v = parsed
	}
	return err
}

// Encode returns v as JSON in one line, without the escapes for HTML, which would make such a text up to six times as
// long.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Decode decodes a text without a fault, as encoding/json does with UseNumber: objects become map[string]any and
// numbers json.Number. ok is false if Check finds a fault.
func Decode(text []byte, maxDepth int) (value any, ok bool) {
	if precheck(text, maxDepth).Fault != 0 {
		return nil, false
	}
	r := newReader(text)
	defer r.free()
	value, err := r.decode()
	if err != nil || r.end() != nil {
		return nil, false
	}
	return value, true
}

func (r *reader) decode() (any, error) {
	switch r.PeekKind() {
	case '{':
		return r.decodeObject()
	case '[':
		return r.decodeArray()
	}
	text, err := r.ReadValue()
	if err != nil {
		return nil, err
	}
	switch text.Kind() {
	case '"':
		return Text(text), nil
	case '0':
		return json.Number(text), nil
	case 't', 'f':
		return text[0] == 't', nil
	default:
		return nil, nil
	}
}

func (r *reader) decodeObject() (any, error) {
	object := make(map[string]any)
	err := r.each(func() error {
		quoted, err := r.ReadValue()
		if err != nil {
			return err
		}
		name := Text(quoted)
		object[name], err = r.decode()
		return err
	})
	return object, err
}

func (r *reader) decodeArray() (any, error) {
	array := []any{}
	err := r.each(func() error {
		item, err := r.decode()
		array = append(array, item)
		return err
	})
	return array, err
}

// each reads an object or an array. read gets each member or element.
func (r *reader) each(read func() error) error {
	if _, err := r.ReadToken(); err != nil {
		return err
	}
	for k := r.PeekKind(); k != '}' && k != ']' && k != 0; k = r.PeekKind() {
		if err := read(); err != nil {
			return err
		}
	}
	_, err := r.ReadToken()
	return err
}

// Member is one member of an object.
type Member struct {
	Name  []byte          // decoded; a part of the text unless it has escapes
	Value json.RawMessage // as it was sent, a part of the text
}

// Errors of Members and Items, besides those of the parser.
var (
	ErrNotObject = errors.New("must be a JSON object")
	ErrNotArray  = errors.New("must be a JSON array")
	ErrTooMany   = errors.New("too many members")
)

// Members appends the members of a JSON object in order, at most limit. It checks the whole text on the way: the
// members that it returns without an error have no fault.
func Members(into []Member, text []byte, limit int) ([]Member, error) {
	return readMembers(into, text, limit)
}

// LenientMembers is Members for a text that others have made or refused: it also accepts duplicate names and invalid
// UTF-8.
func LenientMembers(text []byte, limit int) ([]Member, error) {
	return readMembers(nil, text, limit, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

func readMembers(into []Member, text []byte, limit int, options ...jsontext.Options) ([]Member, error) {
	r := newReader(text, options...)
	defer r.free()
	if r.PeekKind() != '{' {
		return nil, first(r.value, ErrNotObject)
	}
	most := len(into) + limit
	err := r.each(func() error {
		if len(into) == most {
			return ErrTooMany
		}
		name, err := r.value()
		if err != nil {
			return err
		}
		value, err := r.value()
		into = append(into, Member{unquoted(name), value})
		return err
	})
	if err != nil {
		return nil, err
	}
	return into, r.end()
}

// Items returns the elements of a JSON array in order, each a part of the text.
func Items(text []byte) ([]json.RawMessage, error) {
	r := newReader(text)
	defer r.free()
	if r.PeekKind() != '[' {
		return nil, first(r.value, ErrNotArray)
	}
	items := []json.RawMessage{}
	err := r.each(func() error {
		item, err := r.value()
		items = append(items, item)
		return err
	})
	if err != nil {
		return nil, err
	}
	return items, r.end()
}

// first returns the error of reading the value, or other if there is none.
func first(value func() ([]byte, error), other error) error {
	if _, err := value(); err != nil {
		return err
	}
	return other
}

// Text decodes a valid JSON string.
func Text(quoted []byte) string { return string(unquoted(quoted)) }

// unquoted decodes a valid JSON string. Without escapes, the result shares the memory of quoted.
func unquoted(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	text, _ := jsontext.AppendUnquote(nil, quoted) // invalid characters become U+FFFD
	return text
}

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string, as encoding/json writes it without HTML escaping: invalid UTF-8 becomes
// U+FFFD. Answers and frames use it where reflection would be most of the work. For an id, jsontext.AppendQuote takes
// 80 ns and this takes 33 ns. AppendQuote also writes U+2028 differently from earlier answers.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0 // of the bytes to copy unchanged
	for i := plainWords(s); i < len(s); {
		c := s[i]
		if c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		if c < utf8.RuneSelf {
			b = append(b, s[start:i]...)
			b = appendEscaped(b, c)
			i++
			start = i
			i += plainWords(s[i:])
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 || r == '\u2028' || r == '\u2029' { // the last two end a line in JavaScript
			b = append(b, s[start:i]...)
			b = append(b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
			start = i + size
		}
		i += size
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}

// AppendScalar appends a value that is neither an object nor an array, as a json.Decoder with json.Number returns it.
func AppendScalar(b []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		return AppendString(b, v)
	case json.Number:
		return append(b, v...)
	case bool:
		return strconv.AppendBool(b, v)
	default:
		return append(b, "null"...)
	}
}

// plainWords returns how many bytes at the beginning of s need no escape in JSON, in steps of eight.
func plainWords(s string) int {
	const (
		ones = 0x0101010101010101 // one in each of eight bytes
		tops = 0x80 * ones
	)
	n := 0
	for ; len(s)-n >= 8; n += 8 {
		t := s[n : n+8]
		w := uint64(t[0]) | uint64(t[1])<<8 | uint64(t[2])<<16 | uint64(t[3])<<24 |
			uint64(t[4])<<32 | uint64(t[5])<<40 | uint64(t[6])<<48 | uint64(t[7])<<56
		// The top bit of a byte is set by itself, or by a subtraction that went below zero. If none is set, nothing was
		// borrowed from the next byte either.
		if (w|(w-' '*ones)|((w^'"'*ones)-ones)|((w^'\\'*ones)-ones))&tops != 0 {
			break
		}
	}
	return n
}

func appendEscaped(b []byte, c byte) []byte {
	if i := strings.IndexByte("\"\\\b\f\n\r\t", c); i >= 0 {
		return append(b, '\\', `"\bfnrt`[i])
	}
	return append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

package strictjson

import (
	"bytes"
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"
)

// Value is one JSON value that was checked and has no fault. A function that takes a Value need not check it again. The
// zero value is no value. Its bytes are read-only.
type Value struct{ text json.RawMessage }

// Parse checks a text and keeps it.
func Parse(text []byte) (Value, error) {
	if Valid(text) {
		return Value{bytes.TrimSpace(text)}, nil
	}
	r := newReader(text)
	defer r.free()
	_, err := r.ReadValue()
	if err == nil {
		err = r.end()
	}
	return Value{}, err
}

// ReplaceHalves returns a text in which every half of a surrogate pair that stands alone is U+FFFD. ok is false if the
// result is not a value without a fault.
func ReplaceHalves(text []byte) (replaced []byte, ok bool) {
	replaced, err := jsontext.AppendFormat(nil, text, jsontext.AllowInvalidUTF8(true))
	return replaced, err == nil && Valid(replaced)
}

// Must is Parse for texts of the program itself. It panics where Parse fails.
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
	if json.Compact(&b, v.text) != nil { // cannot be: it was checked
		return v
	}
	return Value{b.Bytes()}
}

// Clone returns a copy that shares no memory with v.
func (v Value) Clone() Value { return Value{bytes.Clone(v.text)} }

// MarshalJSON implements json.Marshaler.
func (v Value) MarshalJSON() ([]byte, error) { return v.text.MarshalJSON() }

// UnmarshalJSON implements json.Unmarshaler. It fails at what encoding/json takes and this package does not.
func (v *Value) UnmarshalJSON(text []byte) error {
	parsed, err := Parse(bytes.Clone(text))
	if err == nil {
		*v = parsed
	}
	return err
}

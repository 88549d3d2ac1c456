// Package fields reads the members of JSON objects that devices send. It accepts only objects that all parsers read
// alike, and names the mistake in all others for the device. Packages ws and ws/mcp use it for every message.
//
// split.go splits a text into members. An Object of fields.go reads them one by one, with their types.
package fields

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// Codes of mistakes.
const (
	CodeInvalidJSON    = "INVALID_JSON"
	CodeInvalidMessage = "INVALID_MESSAGE" // a field is missing or has the wrong type; the message names it
	CodeUnknownType    = "UNKNOWN_MESSAGE_TYPE"
)

// Error is a mistake in a message. The gateway names it to the device and keeps the socket open.
type Error struct {
	Code    string
	Message string
}

// Error implements error.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// NewError returns an Error.
func NewError(code, message string) *Error { return &Error{Code: code, Message: message} }

// Invalid returns an Error with CodeInvalidMessage.
func Invalid(format string, args ...any) *Error {
	return NewError(CodeInvalidMessage, fmt.Sprintf(format, args...))
}

// Object reads the members of one object. A method that finds a member missing or of the wrong type stores that as the
// mistake, if there was none before, and returns the zero value. Members that are null count as absent. It is not safe
// for concurrent use.
type Object struct {
	members []strictjson.Member
	bad     **Error   // a pointer to it, so that members can stay on the caller's stack when the mistake is returned
	asked   *[]string // names of the members read, including absent ones; nil: not recorded
	ignored []string  // what Ignore recorded
}

// New returns an Object that stores the first mistake at bad.
func New(members []strictjson.Member, bad **Error) Object { return Object{members: members, bad: bad} }

// Recording is New with a record of the members that are read, for Unread.
func Recording(members []strictjson.Member, bad **Error) Object {
	return Object{members: members, bad: bad, asked: new([]string)}
}

// Open reads a JSON object. absent is the mistake if there is none.
func Open(object []byte, absent string, bad **Error) (o *Object, mistake string) {
	members, reason, ok := Split(nil, object)
	switch {
	case ok:
		return &Object{members: members, bad: bad}, ""
	case reason == "":
		return nil, absent
	default:
		return nil, reason
	}
}

// Inner opens a member. Its mistakes are those of o.
func (o *Object) Inner(key, absent string) (inner *Object, mistake string) {
	return Open(o.Value(key), absent, o.bad)
}

// Member returns a member of a JSON object, nil if it or the object is absent.
func Member(object json.RawMessage, key string) json.RawMessage {
	o, mistake := Open(object, "is required", nil)
	if mistake != "" {
		return nil
	}
	return o.Value(key)
}

// Bad returns the first mistake, nil if there is none.
func (o *Object) Bad() *Error { return *o.bad }

// Fail stores a mistake, unless there is one already.
func (o *Object) Fail(key, must string) {
	if *o.bad == nil {
		*o.bad = Invalid("%s: %s", key, must)
	}
}

// Unread returns the names of the members that were not read, then what Ignore recorded.
func (o *Object) Unread() []string {
	var names []string
	for _, m := range o.members {
		if name := string(m.Name); !slices.Contains(*o.asked, name) {
			names = append(names, Short(strings.ToValidUTF8(name, "")))
		}
	}
	return append(names, o.ignored...)
}

// Ignore records the path of an unread member of an inner object.
func (o *Object) Ignore(path string) { o.ignored = append(o.ignored, path) }

// Value returns a member as it was sent, nil if it is absent.
func (o *Object) Value(key string) json.RawMessage {
	return o.member(key).Value
}

// JSON is Value as checked JSON, the zero value if the member is absent. The members must be of Split.
func (o *Object) JSON(key string) registry.JSON { return o.member(key).Checked() }

// member returns a member, the zero value if it is absent.
func (o *Object) member(key string) strictjson.Member {
	if o.asked != nil {
		*o.asked = append(*o.asked, key)
	}
	for _, m := range o.members {
		if string(m.Name) == key && string(m.Value) != "null" {
			return m
		}
	}
	return strictjson.Member{}
}

// Required is Value for a member that must be there.
func (o *Object) Required(key string) json.RawMessage {
	v := o.Value(key)
	if v == nil {
		o.Fail(key, "is required")
	}
	return v
}

// Text returns a string that must be there.
func (o *Object) Text(key string) string {
	v := o.Required(key)
	if v == nil {
		return ""
	}
	if v[0] != '"' {
		o.Fail(key, "must be a string")
		return ""
	}
	return strictjson.Text(v)
}

// OptionalText returns a string, nil if it is absent.
func (o *Object) OptionalText(key string) *string {
	if o.Value(key) == nil {
		return nil
	}
	return new(o.Text(key))
}

// TextOr returns a string, otherwise if it is absent.
func (o *Object) TextOr(key, otherwise string) string {
	if o.Value(key) == nil {
		return otherwise
	}
	return o.Text(key)
}

// OptionalBool returns true or false, nil if it is absent.
func (o *Object) OptionalBool(key string) *bool {
	v := o.Value(key)
	if v == nil {
		return nil
	}
	b := string(v) == "true"
	if !b && string(v) != "false" {
		o.Fail(key, "must be true or false")
	}
	return &b
}

// OptionalInt returns a whole number, nil if it is absent.
func (o *Object) OptionalInt(key string) *int64 {
	v := o.Value(key)
	if v == nil {
		return nil
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		o.Fail(key, "must be a whole number")
	}
	return &n
}

// OptionalNumber returns a number that fits a float64 as it was sent, nil if it is absent.
func (o *Object) OptionalNumber(key string) json.RawMessage {
	v := o.Value(key)
	if v == nil {
		return nil
	}
	if _, err := strconv.ParseFloat(string(v), 64); err != nil { // in valid JSON only numbers parse
		o.Fail(key, "must be a finite number")
	}
	return v
}

// Array returns the elements of an array that must be there.
func (o *Object) Array(key string) []json.RawMessage {
	v := o.Required(key)
	if v == nil {
		return nil
	}
	if v[0] != '[' {
		o.Fail(key, "must be an array")
		return nil
	}
	items, err := strictjson.Items(v)
	if err != nil {
		o.Fail(key, err.Error())
	}
	return items
}

// Texts returns an array of strings that must be there.
func (o *Object) Texts(key string) []string {
	items := o.Array(key)
	texts := make([]string, len(items))
	for i, item := range items {
		if item[0] != '"' {
			o.Fail(fmt.Sprintf("%s[%d]", key, i), "must be a string")
			return nil
		}
		texts[i] = strictjson.Text(item)
	}
	return texts
}

// OptionalTexts returns an array of strings, nil if it is absent.
func (o *Object) OptionalTexts(key string) []string {
	if o.Value(key) == nil {
		return nil
	}
	return o.Texts(key)
}

// Data returns a base64 string of 1 to most bytes that must be there.
func (o *Object) Data(key string, most int) []byte {
	v := o.Required(key)
	if v == nil {
		return nil
	}
	const bad = "must be a string in base64, with padding and without line breaks"
	if v[0] != '"' {
		o.Fail(key, bad)
		return nil
	}
	if len(v)-len(`""`) > base64.StdEncoding.EncodedLen(most) {
		o.Fail(key, tooLong())
		return nil
	}
	text := strictjson.Text(v)
	data, err := base64.StdEncoding.Strict().DecodeString(text)
	switch {
	case err != nil || strings.ContainsAny(text, "\r\n"): // line breaks, which the decoder skips
		o.Fail(key, bad)
	case len(data) == 0:
		o.Fail(key, "must not be empty")
	case len(data) > most:
		o.Fail(key, tooLong())
	}
	return data
}

func tooLong() string {
	return fmt.Sprintf("is too long: the parts of a result may have %d bytes in total", registry.MaxInlinePart)
}

// MaxEcho is how many bytes of a device's text an error repeats.
const MaxEcho = 128

// Short cuts s to MaxEcho bytes.
func Short(s string) string {
	if len(s) <= MaxEcho {
		return s
	}
	return Truncate(s, MaxEcho) + "…"
}

// Quote returns a quoted s, cut to MaxEcho bytes.
func Quote(s string) string { return strconv.Quote(strings.ToValidUTF8(Short(s), "")) }

// Truncate returns at most n bytes of s, whole characters only.
func Truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

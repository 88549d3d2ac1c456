package openai

import (
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strconv"
)

// fields are the members of a JSON object of a request, which may have more of them than are read. Names match exactly.
// A field that is null counts as absent, because clients write out what they leave to the server.
//
// The first value that is wrong becomes the error of the request. Whoever reads on gets zero values or wrong ones, and
// need not look at the error before the end.
type fields struct {
	at      string // path of the object; empty: the body
	members map[string]json.RawMessage
	failed  *error // the first error of the request
}

// readFields splits an object of a body that was checked. at is its path.
func readFields(text []byte, at string, failed *error) fields {
	f := fields{at: at, failed: failed}
	if err := json.Unmarshal(text, &f.members); err != nil || f.members == nil {
		f.fail("", "%s must be a JSON object.", named(at))
	}
	maps.DeleteFunc(f.members, func(_ string, value json.RawMessage) bool { return string(value) == "null" })
	return f
}

// path returns the path of a field, or of the object if name is empty.
func (f fields) path(name string) string {
	if f.at == "" || name == "" {
		return f.at + name
	}
	return f.at + "." + name
}

// named returns the name of the value at a path, for messages.
func named(at string) string {
	if at == "" {
		return "The body"
	}
	return "The field " + strconv.Quote(at)
}

// fail says that a field is wrong, or the object if name is empty. Only the first error counts.
func (f fields) fail(name, format string, args ...any) {
	if *f.failed == nil {
		*f.failed = badParam(f.path(name), format, args...)
	}
}

// decode reads a field into to, and reports whether it is there. what it must be is for the message.
func (f fields) decode(name string, to any, what string) bool {
	text, ok := f.members[name]
	if ok && json.Unmarshal(text, to) != nil {
		f.fail(name, "%s must be %s.", named(f.path(name)), what)
	}
	return ok
}

// has reports whether a field is there.
func (f fields) has(name string) bool { return f.members[name] != nil }

// str returns a string, empty when it is absent.
func (f fields) str(name string) (s string) {
	f.decode(name, &s, "a string")
	return s
}

// kind returns the field "type", empty when it is absent or no string.
func (f fields) kind() (kind string) {
	if json.Unmarshal(f.members["type"], &kind) != nil {
		return ""
	}
	return kind
}

// flag returns a flag, nil when it is absent.
func (f fields) flag(name string) *bool {
	var on bool
	if !f.decode(name, &on, "true or false") {
		return nil
	}
	return &on
}

// isSet reports whether a flag is true.
func (f fields) isSet(name string) bool {
	on := f.flag(name)
	return on != nil && *on
}

// number returns a number from least to most, nil when it is absent.
func (f fields) number(name string, least, most float64) *float64 {
	text, ok := f.members[name]
	if !ok {
		return nil
	}
	var n float64
	if json.Unmarshal(text, &n) != nil || n < least || n > most {
		f.fail(name, "%s must be a number from %v to %v.", named(f.path(name)), least, most)
	}
	return &n
}

// count returns a whole number above zero, zero when it is absent.
func (f fields) count(name string) int {
	text, ok := f.members[name]
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(string(text), 10, 32)
	if err != nil || n < 1 {
		f.fail(name, "%s must be a whole number above zero.", named(f.path(name)))
	}
	return int(n)
}

// object returns the fields of a field that must be an object.
func (f fields) object(name string) fields {
	return readFields(f.members[name], f.path(name), f.failed)
}

// list returns the elements of an array, none when it is absent. what it must be is for the message.
func (f fields) list(name, what string) (all []json.RawMessage) {
	f.decode(name, &all, what)
	return all
}

// objects returns the fields of each element of a list, until the first error of the request.
func (f fields) objects(name string, list []json.RawMessage) iter.Seq[fields] {
	return func(yield func(fields) bool) {
		for i, text := range list {
			element := readFields(text, f.path(name)+"["+strconv.Itoa(i)+"]", f.failed)
			if *f.failed != nil || !yield(element) {
				return
			}
		}
	}
}

// only refuses fields that are not known.
func (f fields) only(known ...string) {
	for _, name := range slices.Sorted(maps.Keys(f.members)) {
		if !slices.Contains(known, name) {
			f.fail(name, "The field %.120q is not offered.", f.path(name))
		}
	}
}

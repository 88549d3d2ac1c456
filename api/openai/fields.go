package openai

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// fields are the members of a JSON object, which may have more of them than are read. Names match exactly. A field that
// is null counts as absent, because clients write out what they leave to the server.
type fields map[string]json.RawMessage

// readFields splits an object of a body that was checked. at is its path, for messages.
func readFields(text []byte, at string) (fields, error) {
	var all fields
	if err := json.Unmarshal(text, &all); err != nil || all == nil {
		return nil, badParam(at, "%s must be a JSON object.", named(at))
	}
	for name, value := range all {
		if string(value) == "null" {
			delete(all, name)
		}
	}
	return all, nil
}

// named returns the name of the value at a path, for messages.
func named(at string) string {
	if at == "" {
		return "The body"
	}
	return "The field " + strconv.Quote(at)
}

// str returns a string, empty when it is absent.
func (f fields) str(name, at string) (string, error) {
	text, ok := f[name]
	if !ok {
		return "", nil
	}
	var s string
	if json.Unmarshal(text, &s) != nil {
		return "", badParam(at, "%s must be a string.", named(at))
	}
	return s, nil
}

func (f fields) flag(name, at string) (bool, error) {
	text, ok := f[name]
	if !ok {
		return false, nil
	}
	switch string(text) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, badParam(at, "%s must be true or false.", named(at))
	}
}

// optionalFlag returns a flag, nil when it is absent.
func (f fields) optionalFlag(name, at string) (*bool, error) {
	if _, ok := f[name]; !ok {
		return nil, nil
	}
	on, err := f.flag(name, at)
	return &on, err
}

// number returns a number from least to most, nil when it is absent.
func (f fields) number(name string, least, most float64) (*float64, error) {
	text, ok := f[name]
	if !ok {
		return nil, nil
	}
	var n float64
	if json.Unmarshal(text, &n) != nil || n < least || n > most {
		return nil, badParam(name, "%s must be a number from %v to %v.", named(name), least, most)
	}
	return &n, nil
}

// only refuses fields that are not known.
func (f fields) only(at string, known ...string) error {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if !slices.Contains(known, name) {
			if at != "" {
				name = at + "." + name
			}
			return badParam(name, "The field %.120q is not offered.", name)
		}
	}
	return nil
}

// count returns a whole number above zero, zero when it is absent.
func (f fields) count(name, at string) (int, error) {
	text, ok := f[name]
	if !ok {
		return 0, nil
	}
	n, err := strconv.ParseInt(string(text), 10, 32)
	if err != nil || n < 1 {
		return 0, badParam(at, "%s must be a whole number above zero.", named(at))
	}
	return int(n), nil
}

// list returns the elements of an array, none when it is absent.
func (f fields) list(name, at string) ([]json.RawMessage, error) {
	text, ok := f[name]
	if !ok {
		return nil, nil
	}
	var all []json.RawMessage
	if json.Unmarshal(text, &all) != nil {
		return nil, badParam(at, "%s must be an array.", named(at))
	}
	return all, nil
}

// index names an element of an array.
func index(at string, i int) string { return at + "[" + strconv.Itoa(i) + "]" }

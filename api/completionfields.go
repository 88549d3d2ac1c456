package api

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// fields is a JSON object of a request that may have more in it than is looked at. Names match exactly. What is null
// is absent, as clients write out what they leave to the server.
type fields map[string]json.RawMessage

// readFields splits an object that checkJSON has seen. at is its path, for messages.
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

// named returns how a message calls the value at a path.
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
	on, err := readBool(text, at)
	if err != nil {
		return false, badParam(at, "%s must be true or false.", named(at))
	}
	return on, nil
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
			at := join(at, name)
			return badParam(at, "The field %.120q is not offered.", at)
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

package ws

import (
	"bytes"
	"errors"

	"github.com/farhand/farhand/internal/strictjson"
)

// maxFields bounds the members of one JSON object, so that looking for duplicates stays cheap.
const maxFields = 64

// fewFields is more members than most objects have.
const fewFields = 8

// splitObject returns the members of a JSON object in order. The returned text is the reason when ok is false.
func splitObject(data []byte) (members []strictjson.Member, reason string, ok bool) {
	return appendMembers(make([]strictjson.Member, 0, fewFields), data)
}

// appendMembers is splitObject into a slice of the caller.
func appendMembers(into []strictjson.Member, data []byte) (members []strictjson.Member, reason string, ok bool) {
	members, err := strictjson.Members(into, data, maxFields)
	if err != nil && mayHaveHalves(data) { // many apps cut text in the middle of a character
		if whole, ok := strictjson.ReplaceHalves(data); ok {
			members, err = strictjson.Members(into, whole, maxFields)
		}
	}
	switch {
	case err == nil:
		return members, "", true
	case errors.Is(err, strictjson.ErrTooMany):
		return nil, "more than 64 fields", false
	case errors.Is(err, strictjson.ErrNotObject):
		return nil, err.Error(), false
	}
	if p := strictjson.Explain(err); p.Fault == strictjson.NameTwice {
		return nil, twice(p.Path), false
	}
	return nil, "", false
}

// foldedTwice returns why an object is refused in which two names differ in case only, empty if there are none. Two
// readers of such an object can disagree about what it says.
func foldedTwice(members []strictjson.Member) (reason string) {
	for i, m := range members {
		for _, earlier := range members[:i] {
			if bytes.EqualFold(earlier.Name, m.Name) {
				return twice(string(m.Name))
			}
		}
	}
	return ""
}

func twice(name string) string { return "the field " + quoteShort(name) + " is there twice" }

// mayHaveHalves reports whether a text may have half of a surrogate pair, which only an escape can be.
func mayHaveHalves(data []byte) bool {
	return bytes.Contains(data, []byte(`\ud`)) || bytes.Contains(data, []byte(`\uD`))
}

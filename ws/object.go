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

// splitObject appends the members of a JSON object in order. The returned text is the reason when ok is false. Names
// that differ in case only are refused, because two readers of such an object can disagree about what it says.
func splitObject(into []strictjson.Member, data []byte) (members []strictjson.Member, reason string, ok bool) {
	members, reason, ok = appendMembers(into, data)
	if reason == "" {
		reason = foldedTwice(members)
	}
	return members, reason, ok && reason == ""
}

// appendMembers is splitObject for an object whose names may differ in case only.
func appendMembers(into []strictjson.Member, data []byte) (members []strictjson.Member, reason string, ok bool) {
	if into == nil {
		into = make([]strictjson.Member, 0, fewFields)
	}
	members, err := strictjson.Members(into, data, maxFields)
	if err != nil && mayHaveHalves(data) { // many apps truncate text in the middle of a character
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

// foldedTwice returns which names differ in case only, empty if there are none.
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

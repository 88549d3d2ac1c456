package ws

import (
	"bytes"
	"errors"
	"unicode"
	"unicode/utf8"

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

// maxFieldName is more bytes than the name of any field has that is read here, in any case. Longer ones are not looked
// at.
const maxFieldName = 64

// foldedTwice returns which names differ in case only, empty if there are none.
func foldedTwice(members []strictjson.Member) (reason string) {
	if len(members) > fewFields {
		return foldedTwiceInMany(members)
	}
	for i, m := range members {
		if len(m.Name) > maxFieldName {
			continue
		}
		for _, earlier := range members[:i] {
			if bytes.EqualFold(earlier.Name, m.Name) {
				return twice(string(m.Name))
			}
		}
	}
	return ""
}

// foldedTwiceInMany is foldedTwice in a time that grows with the bytes of the names alone: comparing each with each, a
// frame of objects whose names begin alike would take a hundred times as long as another one of its length.
func foldedTwiceInMany(members []strictjson.Member) (reason string) {
	seen := make(map[string]struct{}, len(members))
	var folded []byte
	for _, m := range members {
		if len(m.Name) > maxFieldName {
			continue
		}
		folded = appendFolded(folded[:0], m.Name)
		if _, there := seen[string(folded)]; there {
			return twice(string(m.Name))
		}
		seen[string(folded)] = struct{}{}
	}
	return ""
}

// appendFolded appends a name in the one spelling that it has in common with all that differ from it in case only, as
// bytes.EqualFold has it.
func appendFolded(b, name []byte) []byte {
	for len(name) > 0 {
		r, size := utf8.DecodeRune(name)
		name = name[size:]
		first := r
		for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
			first = min(first, other)
		}
		b = utf8.AppendRune(b, first)
	}
	return b
}

func twice(name string) string { return "the field " + quoteShort(name) + " is there twice" }

// mayHaveHalves reports whether a text may have half of a surrogate pair, which only an escape can be.
func mayHaveHalves(data []byte) bool {
	return bytes.Contains(data, []byte(`\ud`)) || bytes.Contains(data, []byte(`\uD`))
}

package fields

import (
	"bytes"
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"

	"github.com/farhand/farhand/internal/strictjson"
)

// MaxDepth is how deep a message may nest. Schemas have a lower limit.
const MaxDepth = 64

// ErrUTF8 means that a message is not valid UTF-8.
var ErrUTF8 = errors.New("the message is not valid UTF-8")

// Message appends the members of a whole message to into. The error is ErrUTF8 or an *Error.
func Message(into []strictjson.Member, data []byte) ([]strictjson.Member, error) {
	if !utf8.Valid(data) {
		return nil, ErrUTF8
	}
	if strictjson.Depth(data) > MaxDepth {
		return nil, &Error{CodeInvalidJSON, fmt.Sprintf("The frame nests deeper than %d levels.", MaxDepth)}
	}
	members, reason, ok := Split(into, data)
	switch {
	case reason != "":
		return nil, &Error{CodeInvalidJSON, "The frame: " + reason + "."}
	case !ok:
		return nil, &Error{CodeInvalidJSON, "The frame is not valid JSON."}
	}
	return members, nil
}

// Lenient returns the members of an object that may be malformed inside. ok is false if it cannot be split.
func Lenient(data []byte) (members []strictjson.Member, ok bool) {
	members, err := strictjson.LenientMembers(data, maxMembers)
	return members, err == nil && foldedTwice(members) == ""
}

const (
	maxMembers   = 64 // of one JSON object, so that looking for duplicates stays cheap
	maxFieldName = 64 // exceeds the bytes of every name that is read here; longer names are not compared

	// Few is more members than most objects have.
	Few = 8
)

// Split appends the members of a JSON object in order. If ok is false, reason says why; it is empty for invalid JSON.
// Names that differ only in case are rejected, because two readers could interpret such an object differently.
func Split(into []strictjson.Member, data []byte) (members []strictjson.Member, reason string, ok bool) {
	members, reason, ok = SplitMap(into, data)
	if reason == "" {
		reason = foldedTwice(members)
	}
	return members, reason, ok && reason == ""
}

// SplitMap is Split for objects whose names may differ only in case.
func SplitMap(into []strictjson.Member, data []byte) (members []strictjson.Member, reason string, ok bool) {
	if into == nil {
		into = make([]strictjson.Member, 0, Few)
	}
	members, err := strictjson.Members(into, data, maxMembers)
	if err != nil && mayHaveHalves(data) { // many apps truncate text in the middle of a character
		if whole, ok := strictjson.ReplaceHalves(data); ok {
			members, err = strictjson.Members(into, whole, maxMembers)
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

// foldedTwice returns the reason to reject names that differ only in case, empty if there are none.
func foldedTwice(members []strictjson.Member) (reason string) {
	if len(members) > Few {
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

// foldedTwiceInMany is foldedTwice in time linear in the bytes of the names. With pairwise comparison, a frame of
// objects whose names begin alike would take a hundred times as long as other frames of its length.
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

// appendFolded appends the common spelling of a name and of all names that bytes.EqualFold considers equal to it.
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

func twice(name string) string { return "the field " + Quote(name) + " appears twice" }

// mayHaveHalves reports whether a text may contain half of a surrogate pair. Only an escape can produce one.
func mayHaveHalves(data []byte) bool {
	return bytes.Contains(data, []byte(`\ud`)) || bytes.Contains(data, []byte(`\uD`))
}

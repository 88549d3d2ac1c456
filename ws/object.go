package ws

import (
	"bytes"
	"encoding/json"

	"github.com/farhand/farhand/internal/strictjson"
)

// maxFields bounds the members of one JSON object that is read strictly, so that looking for duplicates stays cheap.
const maxFields = 64

// fewFields is more members than most objects have.
const fewFields = 8

// field is one member of a JSON object.
type field struct {
	key   []byte          // decoded; most often a part of what was sent
	value json.RawMessage // as it was sent
}

// splitObject returns the members of a JSON object in order. data must be valid JSON. Two members of the same name
// are an error, because two readers of such an object can disagree about what it says; with foldCase names that
// differ in case only count as the same. The returned text is the reason when ok is false.
func splitObject(data []byte, foldCase bool) (members []field, reason string, ok bool) {
	return appendMembers(make([]field, 0, fewFields), data, foldCase)
}

// appendMembers is splitObject into room the caller has.
func appendMembers(members []field, data []byte, foldCase bool) (_ []field, reason string, ok bool) {
	if first := bytes.TrimLeft(data, " \t\r\n"); len(first) == 0 || first[0] != '{' {
		return nil, "must be a JSON object", false
	}
	for key, value := range strictjson.Members(data) {
		for _, m := range members {
			if bytes.Equal(m.key, key) || foldCase && bytes.EqualFold(m.key, key) {
				return nil, "the field " + quoteShort(string(key)) + " is there twice", false
			}
		}
		if len(members) == maxFields {
			return nil, "more than 64 fields", false
		}
		members = append(members, field{key: key, value: value})
	}
	return members, "", true
}

// splitArray returns the elements of a JSON array, as they were sent. data must be valid JSON.
func splitArray(data []byte) []json.RawMessage {
	items := []json.RawMessage{}
	for item := range strictjson.Items(data) {
		items = append(items, item)
	}
	return items
}

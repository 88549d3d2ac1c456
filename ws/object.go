package ws

import (
	"bytes"
	"encoding/json"
	"strings"
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
	i := skipSpace(data, 0)
	if i == len(data) || data[i] != '{' {
		return nil, "must be a JSON object", false
	}
	for i = skipSpace(data, i+1); data[i] != '}'; i = skipSpace(data, i) {
		if data[i] == ',' {
			i++
			continue
		}
		end := stringEnd(data, i)
		key := keyOf(data[i:end])
		for _, m := range members {
			if bytes.Equal(m.key, key) || foldCase && bytes.EqualFold(m.key, key) {
				return nil, "the field " + quoteShort(string(key)) + " is there twice", false
			}
		}
		if len(members) == maxFields {
			return nil, "more than 64 fields", false
		}
		i = skipSpace(data, end) // at the colon
		i = skipSpace(data, i+1) // at the value
		end = valueEnd(data, i)
		members = append(members, field{key: key, value: data[i:end]})
		i = end
	}
	return members, "", true
}

// splitArray returns the elements of a JSON array, as they were sent. data must be valid JSON.
func splitArray(data []byte) []json.RawMessage {
	items := []json.RawMessage{}
	for i := skipSpace(data, 1); data[i] != ']'; i = skipSpace(data, i) {
		if data[i] == ',' {
			i++
			continue
		}
		end := valueEnd(data, i)
		items = append(items, data[i:end])
		i = end
	}
	return items
}

func skipSpace(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\t' || data[i] == '\n' || data[i] == '\r') {
		i++
	}
	return i
}

// stringEnd returns the index behind the string that starts at i.
func stringEnd(data []byte, i int) int {
	for i++; data[i] != '"'; i++ {
		if data[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// valueEnd returns the index behind the value that starts at i.
func valueEnd(data []byte, i int) int {
	switch data[i] {
	case '"':
		return stringEnd(data, i)
	case '{', '[':
		depth := 0
		for {
			switch data[i] {
			case '"':
				i = stringEnd(data, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			i++
			if depth == 0 {
				return i
			}
		}
	default:
		for i < len(data) && strings.IndexByte(",]} \t\r\n", data[i]) < 0 {
			i++
		}
		return i
	}
}

// keyOf decodes a valid JSON string. Where it holds no escape, that is a part of it.
func keyOf(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	return []byte(unquote(quoted))
}

// unquote decodes a valid JSON string.
func unquote(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		return "" // cannot happen: the text was checked
	}
	return s
}

package ws

import (
	"encoding/json"
	"strings"
)

// maxFields bounds the members of one JSON object that is read strictly, so that looking for duplicates stays cheap.
const maxFields = 64

// field is one member of a JSON object, its value as it was sent.
type field struct {
	key   string
	value json.RawMessage
}

// splitObject returns the members of a JSON object in order. data must be valid JSON. Two members of the same name
// are an error, because two readers of such an object can disagree about what it says; with foldCase names that
// differ in case only count as the same. The returned text is the reason when ok is false.
func splitObject(data []byte, foldCase bool) (members []field, reason string, ok bool) {
	i := skipSpace(data, 0)
	if i == len(data) || data[i] != '{' {
		return nil, "must be a JSON object", false
	}
	members = make([]field, 0, 8)
	for i = skipSpace(data, i+1); data[i] != '}'; i = skipSpace(data, i) {
		if data[i] == ',' {
			i++
			continue
		}
		end := stringEnd(data, i)
		key := unquote(data[i:end])
		for _, m := range members {
			if m.key == key || foldCase && strings.EqualFold(m.key, key) {
				return nil, "the field " + quoteShort(key) + " is there twice", false
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

// unquote decodes a valid JSON string.
func unquote(quoted []byte) string {
	plain := quoted[1 : len(quoted)-1]
	for _, b := range plain {
		if b == '\\' {
			var s string
			if json.Unmarshal(quoted, &s) != nil {
				return "" // cannot happen: the text was checked
			}
			return s
		}
	}
	return string(plain)
}

package strictjson

import (
	"bytes"
	"encoding/json"
	"iter"
	"strings"
)

// Members returns the fields of a JSON object in order: names decoded, values as they were sent. text must be valid JSON and
// an object. What it yields are parts of text, but for names with escapes.
func Members(text []byte) iter.Seq2[[]byte, json.RawMessage] {
	return func(yield func([]byte, json.RawMessage) bool) {
		for i := afterSpace(text, afterSpace(text, 0)+1); text[i] != '}'; i = afterSpace(text, i) {
			if text[i] == ',' {
				i++
				continue
			}
			end := stringEnd(text, i)
			name := unquoted(text[i:end])
			i = afterSpace(text, afterSpace(text, end)+1) // over the colon, to the value
			end = valueEnd(text, i)
			if !yield(name, text[i:end:end]) {
				return
			}
			i = end
		}
	}
}

// Items returns the elements of a JSON array in order, as they were sent. text must be valid JSON and an array.
func Items(text []byte) iter.Seq[json.RawMessage] {
	return func(yield func(json.RawMessage) bool) {
		for i := afterSpace(text, afterSpace(text, 0)+1); text[i] != ']'; i = afterSpace(text, i) {
			if text[i] == ',' {
				i++
				continue
			}
			end := valueEnd(text, i)
			if !yield(text[i:end:end]) {
				return
			}
			i = end
		}
	}
}

// Text decodes a valid JSON string.
func Text(quoted []byte) string { return string(unquoted(quoted)) }

// unquoted decodes a valid JSON string. Where nothing is escaped, that is a part of it.
func unquoted(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	var s string
	_ = json.Unmarshal(quoted, &s) // cannot fail: it is valid
	return []byte(s)
}

func afterSpace(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\t' || text[i] == '\n' || text[i] == '\r') {
		i++
	}
	return i
}

// stringEnd returns the index behind the string that starts at i.
func stringEnd(text []byte, i int) int {
	for i++; text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// valueEnd returns the index behind the value that starts at i.
func valueEnd(text []byte, i int) int {
	switch text[i] {
	case '"':
		return stringEnd(text, i)
	case '{', '[':
		for depth := 0; ; i++ {
			switch text[i] {
			case '"':
				i = stringEnd(text, i) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
	default:
		for i < len(text) && strings.IndexByte(",]} \t\r\n", text[i]) < 0 {
			i++
		}
		return i
	}
}

package jsonbody

import (
	"errors"
	"strings"
	"testing"

	"github.com/farhand/farhand/registry"
)

func TestCheck(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":[1,{"b":null}]}`: "", `7`: "",
		"\xff":                 "The body is not valid UTF-8.",
		`{"a":1,"b":{},"a":2}`: "The field \"a\" appears twice.",
		`{"a":}`: "The body is not one valid JSON value: " +
			"invalid character '}' looking for beginning of value at byte 6.",
		`{} {}`: "The body is not one valid JSON value: " +
			"invalid character '{' after top-level value at byte 4.",
		nested(maxDepth):     "",
		nested(maxDepth + 1): "The body nests deeper than 65 levels.",
	} {
		err := Check([]byte(text))
		if want == "" && err == nil {
			continue
		}
		if err == nil || !errors.Is(err, registry.CodeInvalidRequest) || registry.AsError(err).Message != want {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

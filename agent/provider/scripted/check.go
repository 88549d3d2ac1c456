package scripted

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/farhand/farhand/agent/provider"
)

var (
	namePattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	idPattern   = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
)

// refuse returns why a request is rejected, with the text of the vendor, which is a sentence.
func refuse(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

type refusal string

func (r refusal) Error() string { return string(r) }

// tool is a tool in both formats, which differ only in the name of the schema.
type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	InputSchema json.RawMessage `json:"input_schema"`
}

// readTools checks tools as both vendors do. where is the format of a tool's position in errors.
func readTools(r *Request, where string, tools []tool) error {
	seen := map[string]bool{}
	for i, t := range tools {
		at := fmt.Sprintf(where, i)
		schema := t.Parameters
		if schema == nil {
			schema = t.InputSchema
		}
		var kind struct {
			Type string `json:"type"`
		}
		switch {
		case !namePattern.MatchString(t.Name):
			return invalidName(at+".name", t.Name)
		case seen[t.Name]:
			return refuse("tools: Tool names must be unique: '%s'", t.Name)
		case json.Unmarshal(schema, &kind) != nil || kind.Type != "object":
			return refuse("Invalid schema for '%s': schema must be of type \"object\".", at)
		}
		if key := refusedKeyword(schema); key != "" {
			return refuse("Invalid schema for '%s': schema must be of type \"object\" and not have '%s' at the "+
				"top level.", at, key)
		}
		seen[t.Name] = true
		r.Tools = append(r.Tools, provider.Tool{Name: t.Name, Description: t.Description, Parameters: schema})
	}
	return nil
}

// refusedKeyword returns the keyword that neither vendor accepts at the top of a schema, or "".
func refusedKeyword(schema json.RawMessage) string {
	var members map[string]json.RawMessage
	if json.Unmarshal(schema, &members) != nil {
		return ""
	}
	for _, key := range []string{"oneOf", "anyOf", "allOf", "not", "enum"} {
		if _, ok := members[key]; ok {
			return key
		}
	}
	return ""
}

func invalidName(where, name string) error {
	return refuse("Invalid '%s': '%s' does not match '%s'.", where, name, namePattern)
}

func sortedKeys[V any](m map[string]V) string {
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}

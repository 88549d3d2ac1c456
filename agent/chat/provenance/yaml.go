package provenance

import (
	"encoding/json"
	"errors"
	"io"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Bounds of what is read as YAML, in bytes. In what is beyond nothing is a field.
const (
	maxYAML    = 64 << 10 // of one text
	maxAllYAML = 8 * maxYAML
)

// addYAML notes the fields of a text that is one list or record in YAML. Many tools print theirs so, and Python's own
// form is YAML as well. The text stays running text besides: comments and the names of members are no fields.
func (r *reader) addYAML(x *index, of origin, text string) {
	if len(text) > min(maxYAML, maxAllYAML-x.yaml) || !looksLikeYAML(text) || json.Valid([]byte(text)) {
		return
	}
	x.yaml += len(text)
	var doc, more yaml.Node
	d := yaml.NewDecoder(strings.NewReader(text))
	if d.Decode(&doc) != nil || !errors.Is(d.Decode(&more), io.EOF) || len(doc.Content) != 1 {
		return
	}
	top := doc.Content[0]
	if top.Kind == yaml.MappingNode && len(top.Content) == 2 && top.Style&yaml.FlowStyle == 0 {
		return // a sentence with a colon
	}
	r.addNode(x, of, top)
}

// looksLikeYAML reports whether a text begins as a list or a record does.
func looksLikeYAML(text string) bool {
	line, _, _ := strings.Cut(strings.TrimLeft(text, " \t\r\n"), "\n")
	return strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "{") || strings.HasPrefix(line, "[") ||
		strings.HasSuffix(line, ":") || strings.Contains(line, ": ")
}

// addNode notes the scalars in a list or a record.
func (r *reader) addNode(x *index, of origin, n *yaml.Node) {
	for i, child := range n.Content {
		switch isName := n.Kind == yaml.MappingNode && i%2 == 0; {
		case child.Kind != yaml.ScalarNode:
			r.addNode(x, of, child)
		case !isName:
			r.addField(x, field{origin: of}, child.Value)
		}
	}
}

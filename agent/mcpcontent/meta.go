package mcpcontent

import (
	"encoding/json"

	"github.com/farhand/farhand/registry"
)

// Meta returns the _meta of a tool in MCP's format: the effects and tags that it declares, nil if none. Its annotations
// are listed anyway.
func Meta(t registry.ToolSpec) json.RawMessage {
	meta := make(map[string]any, 2)
	if t.Effects != nil {
		meta[registry.MetaEffects] = t.Effects
	}
	if len(t.Tags) > 0 {
		meta[registry.MetaTags] = t.Tags
	}
	if len(meta) == 0 {
		return nil
	}
	text, _ := json.Marshal(meta) // cannot fail: texts, a boolean and a number
	return text
}

package mcpcontent

import (
	"encoding/json"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// OutputSchema returns the output schema of a tool as MCP clients take it, nil if there is none. Clients refuse a whole
// list of tools for an output schema that is not one of an object.
func OutputSchema(t registry.ToolSpec) json.RawMessage {
	members, err := strictjson.LenientMembers(t.OutputSchema, registry.MaxSchemaBytes)
	if err != nil {
		return nil
	}
	for _, m := range members {
		if string(m.Name) == "type" && string(m.Value) == `"object"` {
			return t.OutputSchema
		}
	}
	return nil
}

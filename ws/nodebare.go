package ws

import (
	"encoding/json"
	"strings"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/node/commands"
)

// bareCatalog offers every command as a tool with any parameters.
type bareCatalog []string

func bareName(command string) string { return strings.NewReplacer(".", "_").Replace(command) }

func (b bareCatalog) Tools() (tools []commands.Tool) {
	for _, c := range b {
		d, _ := json.Marshal(map[string]any{"name": bareName(c), "description": c, "parameters": map[string]any{"type": "object"}})
		tools = append(tools, commands.Tool{Name: bareName(c), Command: c, Definition: d})
	}
	return tools
}

func (b bareCatalog) LeftOut() []commands.LeftOut { return nil }

func (b bareCatalog) Invoke(tool string, call commands.Call) (commands.Invocation, error) {
	for _, c := range b {
		if bareName(c) == tool {
			return commands.Invocation{Command: c, Params: call.Args.Raw()}, nil
		}
	}
	return commands.Invocation{}, registry.Errorf(registry.CodeToolNotFound, "no such tool")
}

func (b bareCatalog) Result(_ string, payload registry.JSON) (registry.Result, error) {
	return registry.NewResult(true, payload, ""), nil
}

func (b bareCatalog) Fail(_ string, f commands.Failure) registry.Result {
	return registry.NewResult(false, registry.JSON{}, f.Code+": "+f.Message)
}

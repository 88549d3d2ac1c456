package openai

import (
	"encoding/json"
	"regexp"

	"github.com/farhand/farhand/agent/provider"
)

// maxCallerTools bounds the tools of a caller, as OpenAI does.
const maxCallerTools = 128

// anyParameters is the schema of a tool that gives none.
const anyParameters = `{"type":"object","properties":{}}`

var modelToolName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// readTools reads the tools that the caller runs itself.
func (r *Request) readTools(f fields) {
	all := f.list("tools", "an array")
	if len(all) > maxCallerTools {
		f.fail("tools", "At most %d tools may be given.", maxCallerTools)
	}
	seen := make(map[string]bool, len(all))
	for one := range f.objects("tools", all) {
		t := readTool(one)
		if seen[t.Name] {
			one.fail("function.name", "The tool %q is given twice.", t.Name)
		}
		seen[t.Name] = true
		r.completion.Tools = append(r.completion.Tools, t)
	}
}

func readTool(f fields) (t provider.Tool) {
	if f.kind() != "function" {
		f.fail("type", "Only tools of the type \"function\" are offered.")
	}
	f = f.object("function")
	if t.Name = f.str("name"); !modelToolName.MatchString(t.Name) {
		f.fail("name", "The name of a tool must match %s.", modelToolName)
	}
	t.Description, t.Strict = f.str("description"), f.flag("strict")
	t.Parameters = json.RawMessage(anyParameters)
	if f.has("parameters") {
		if t.Parameters = f.members["parameters"]; t.Parameters[0] != '{' {
			f.fail("parameters", "%s must be a JSON Schema object.", named(f.path("parameters")))
		}
	}
	return t
}

// readToolChoice reads whether tools are to be called. The choice "none" holds for the device's tools too.
func (r *Request) readToolChoice(f fields) {
	text := f.members["tool_choice"]
	c := &r.completion.Choice
	switch string(text) {
	case "", `"auto"`:
		return
	case `"none"`:
		c.Mode, r.completion.Tools = provider.ChoiceNone, nil
		return
	case `"required"`:
		c.Mode = provider.ChoiceRequired
		return
	}
	if text[0] != '{' {
		f.fail("tool_choice", "The field \"tool_choice\" must be none, auto, required, or name a function.")
		return
	}
	choice := f.object("tool_choice")
	if choice.kind() != "function" {
		choice.fail("", "Of tools that can be chosen, only the type \"function\" is offered.")
	}
	function := choice.object("function")
	c.Mode, c.Name = provider.ChoiceTool, function.str("name")
	if c.Name == "" {
		function.fail("name", "The name of the function is missing.")
	}
}

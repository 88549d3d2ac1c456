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
func (r *request) readTools(f fields) error {
	all, err := f.list("tools", "tools")
	if err != nil {
		return err
	}
	if len(all) > maxCallerTools {
		return badParam("tools", "At most %d tools may be given.", maxCallerTools)
	}
	seen := make(map[string]bool, len(all))
	for i, text := range all {
		at := index("tools", i)
		t, err := readTool(text, at)
		if err != nil {
			return err
		}
		if seen[t.Name] {
			return badParam(at+".function.name", "The tool %q is given twice.", t.Name)
		}
		seen[t.Name] = true
		r.completion.Tools = append(r.completion.Tools, t)
	}
	return nil
}

func readTool(text json.RawMessage, at string) (t provider.Tool, err error) {
	outer, err := readFields(text, at)
	if err != nil {
		return t, err
	}
	if kind, err := outer.str("type", at+".type"); err != nil || kind != "function" {
		return t, badParam(at+".type", "Only tools of the type \"function\" are offered.")
	}
	at += ".function"
	f, err := readFields(outer["function"], at)
	if err != nil {
		return t, err
	}
	if t.Name, err = f.str("name", at+".name"); err != nil {
		return t, err
	}
	if !modelToolName.MatchString(t.Name) {
		return t, badParam(at+".name", "The name of a tool must match %s.", modelToolName)
	}
	if t.Description, err = f.str("description", at+".description"); err != nil {
		return t, err
	}
	if t.Strict, err = f.optionalFlag("strict", at+".strict"); err != nil {
		return t, err
	}
	t.Parameters = json.RawMessage(anyParameters)
	if parameters, ok := f["parameters"]; ok {
		if parameters[0] != '{' {
			return t, badParam(at+".parameters", "%s must be a JSON Schema object.", named(at+".parameters"))
		}
		t.Parameters = parameters
	}
	return t, nil
}

// readToolChoice reads whether tools are to be called. The choice "none" holds for the device's tools too.
func (r *request) readToolChoice(f fields) error {
	text, ok := f["tool_choice"]
	if !ok {
		return nil
	}
	c := &r.completion.Choice
	switch string(text) {
	case `"auto"`:
		return nil
	case `"none"`:
		c.Mode, r.completion.Tools = provider.ChoiceNone, nil
		return nil
	case `"required"`:
		c.Mode = provider.ChoiceRequired
		return nil
	}
	choice, err := readFields(text, "tool_choice")
	if err != nil {
		return badParam("tool_choice", "The field \"tool_choice\" must be none, auto, required, or name a function.")
	}
	if kind, err := choice.str("type", "tool_choice.type"); err != nil || kind != "function" {
		return badParam("tool_choice", "Of tools that can be chosen, only the type \"function\" is offered.")
	}
	function, err := readFields(choice["function"], "tool_choice.function")
	if err != nil {
		return err
	}
	c.Mode = provider.ChoiceTool
	if c.Name, err = function.str("name", "tool_choice.function.name"); err == nil && c.Name == "" {
		err = badParam("tool_choice.function.name", "The name of the function is missing.")
	}
	return err
}

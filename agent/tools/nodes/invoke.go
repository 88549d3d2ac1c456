package nodes

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/farhand/farhand/internal/publicnet"
	"github.com/farhand/farhand/registry"
)

// invoke is the tool node-invoke: any command that a device has.
type invoke struct {
	reach
	urls publicnet.Guard
}

// Spec implements agent.Tool.
func (invoke) Spec() registry.ToolSpec {
	return registry.ToolSpec{
		Name: nameInvoke,
		Description: "Have a device carry out any command that it has. The action describe of the tool nodes tells " +
			"which ones, and their params.",
		Parameters: json.RawMessage(`{"type":"object","properties":{` +
			`"device":{"type":"string","maxLength":256,"description":"device_id or session of the device; may ` +
			`be left out if only one device has the command"},` +
			`"command":{"type":"string","minLength":1,"maxLength":256},` +
			`"params":{"type":"object","description":"arguments of the command"}},` +
			`"required":["command"],"additionalProperties":false}`),
		TimeoutMS: timeoutMS, Annotations: hints(),
	}
}

// Validate implements agent.ArgsValidator.
func (i invoke) Validate(_ context.Context, args json.RawMessage) error {
	a, err := readArguments(args)
	if err != nil {
		return err
	}
	name := a.text("command")
	if !registry.ValidToolName(name) {
		return fmt.Errorf("command: no command can have the name %.80q", name)
	}
	var params arguments
	if a["params"] != nil {
		if params, err = readArguments(a["params"]); err != nil {
			return err
		}
	}
	return checkContent(name, params, i.urls)
}

// CallsDevices implements agent.DeviceCaller.
func (invoke) CallsDevices() {}

// Execute implements agent.Tool.
func (i invoke) Execute(ctx context.Context, args json.RawMessage) (registry.Result, error) {
	a, err := readArguments(args)
	if err != nil {
		return registry.Result{}, err
	}
	var params registry.JSON
	if a["params"] != nil {
		if params, err = registry.ParseJSON(a["params"]); err != nil {
			return registry.Result{}, err
		}
	}
	return i.call(ctx, a.text("device"), a.text("command"), params, 0)
}

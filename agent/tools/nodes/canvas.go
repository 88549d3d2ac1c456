package nodes

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/farhand/farhand/internal/publicnet"
	"github.com/farhand/farhand/registry"
)

// canvas is the tool canvas: the surface on which a device shows pages.
type canvas struct {
	reach
	urls publicnet.Guard
}

// Spec implements agent.Tool.
func (canvas) Spec() registry.ToolSpec {
	return registry.ToolSpec{
		Name: nameCanvas,
		Description: "Control what a device shows on its canvas: present it (with a url, or as it is), hide it, " +
			"navigate to a url, eval JavaScript in its page, take a snapshot, push A2UI content as JSON lines, or " +
			"reset that.",
		Parameters: json.RawMessage(`{"type":"object","properties":{` +
			`"action":{"type":"string","enum":["present","hide","navigate","eval","snapshot","a2ui_push",` +
			`"a2ui_reset"]},` +
			`"node":{"type":"string","maxLength":256,"description":"device_id or session of the device; may ` +
			`be left out if only one device has a canvas"},` +
			`"url":{"type":"string","maxLength":8192,"description":"http or https; for present and navigate"},` +
			`"javaScript":{"type":"string","maxLength":65536,"description":"for eval"},` +
			`"quality":{"type":"integer","minimum":1,"maximum":100,"description":"for snapshot"},` +
			`"jsonl":{"type":"string","maxLength":262144,"description":"for a2ui_push: one JSON object on each ` +
			`line"}},` +
			`"required":["action"],"additionalProperties":false}`),
		TimeoutMS: timeoutMS, Annotations: hints(),
	}
}

// Validate implements agent.ArgsValidator.
func (c canvas) Validate(_ context.Context, args json.RawMessage) error {
	a, err := readArguments(args)
	if err != nil {
		return err
	}
	return canvasCommands()[a.text("action")].check(a, c.urls)
}

// CallsDevices implements agent.DeviceCaller.
func (canvas) CallsDevices() {}

// Execute implements agent.Tool.
func (c canvas) Execute(ctx context.Context, args json.RawMessage) (registry.Result, error) {
	a, err := readArguments(args)
	if err != nil {
		return registry.Result{}, err
	}
	cmd, ok := canvasCommands()[a.text("action")]
	if !ok {
		return registry.Result{}, fmt.Errorf("there is no action %q", a.text("action"))
	}
	return cmd.run(ctx, c.reach, a.text("node"), a)
}

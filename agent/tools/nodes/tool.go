package nodes

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/publicnet"
	"github.com/farhand/farhand/registry"
)

// nodes is the tool nodes: which devices there are, what they can do, which want to be paired, and what they do most
// often.
type nodes struct {
	reach
	urls publicnet.Guard
}

// Actions of nodes that are no commands.
const (
	actionStatus   = "status"
	actionDescribe = "describe"
	actionPending  = "pending"
	actionApprove  = "approve"
	actionReject   = "reject"
)

// Spec implements agent.Tool.
func (nodes) Spec() registry.ToolSpec {
	return registry.ToolSpec{
		Name: nameNodes,
		Description: "Discover and use devices: status lists them, describe tells what one can do, pending, approve " +
			"and reject are about devices that want to be paired; notify, camera_snap, camera_list, camera_clip, " +
			"screen_record, location_get and run have a device do it. Other commands go through node-invoke.",
		Parameters: json.RawMessage(`{"type":"object","properties":{` +
			`"action":{"type":"string","enum":["status","describe","pending","approve","reject","notify",` +
			`"camera_snap","camera_list","camera_clip","screen_record","location_get","run"]},` +
			`"deviceId":{"type":"string","maxLength":256,"description":"device_id or session of the device; may be ` +
			`left out if only one device can do it"},` +
			`"title":{"type":"string","maxLength":200,"description":"for notify"},` +
			`"body":{"type":"string","maxLength":4000,"description":"for notify"},` +
			`"facing":{"type":"string","enum":["front","back","both"],"description":"for camera_snap and ` +
			`camera_clip"},` +
			`"duration":{"type":["string","number"],"maxLength":20,"description":"for camera_clip and screen_record, ` +
			`as 10s or 1m; 1 s to 2 min, default 10 s"},` +
			`"command":{"type":"string","maxLength":16384,"description":"for run"},` +
			`"code":{"type":"string","maxLength":40,"description":"for approve and reject: the code that the device ` +
			`shows"}},"required":["action"],"additionalProperties":false}`),
		TimeoutMS: timeoutMS, Annotations: hints(),
	}
}

// Validate implements agent.ArgsValidator.
func (n nodes) Validate(_ context.Context, args json.RawMessage) error {
	a, err := readArguments(args)
	if err != nil {
		return err
	}
	action := a.text("action")
	if (action == actionApprove || action == actionReject) && a["deviceId"] == nil && a["code"] == nil {
		return fmt.Errorf("the action %s needs the code that the device shows, or the deviceId of one that waits",
			action)
	}
	return nodeCommands()[action].check(a, n.urls)
}

// Authorize implements agent.CallAuthorizer. Who wants to be paired is for approvers, as everywhere; and a model
// decides nothing about it, because what it has read may have told it to.
func (n nodes) Authorize(ctx context.Context, caller auth.Identity, args json.RawMessage) error {
	a, err := readArguments(args)
	if err != nil {
		return err
	}
	switch action := a.text("action"); action {
	case actionApprove, actionReject:
		if agent.AskedByModel(ctx) {
			return registry.Errorf(registry.CodePolicyDenied, "Only a person decides which devices are paired, never "+
				"a model. Ask the person to look at the code that the device shows and to run: "+
				"farhand pair approve CODE")
		}
		fallthrough
	case actionPending:
		if !caller.Approves() {
			return auth.NeedRole(caller, auth.NameApprover)
		}
	}
	return nil
}

// CallsDevices implements agent.DeviceCaller.
func (nodes) CallsDevices() {}

// Execute implements agent.Tool.
func (n nodes) Execute(ctx context.Context, args json.RawMessage) (registry.Result, error) {
	a, err := readArguments(args)
	if err != nil {
		return registry.Result{}, err
	}
	id := a.text("deviceId")
	switch action := a.text("action"); action {
	case actionStatus:
		return n.status(ctx, id)
	case actionDescribe:
		return n.describe(ctx, id)
	case actionPending:
		return n.pending(ctx)
	case actionApprove, actionReject:
		return n.decide(ctx, id, a.text("code"), action == actionApprove)
	default:
		cmd, ok := nodeCommands()[action]
		if !ok {
			return registry.Result{}, fmt.Errorf("there is no action %q", action)
		}
		return cmd.run(ctx, n.reach, id, a)
	}
}

// answer is a result with the same in words and in JSON.
func answer(text string, structured any) (registry.Result, error) {
	body, err := json.Marshal(structured)
	if err != nil {
		return registry.Result{}, err
	}
	checked, err := registry.ParseJSON(body)
	return registry.Result{Success: true, Output: text, Structured: checked}, err
}

// Package nodes implements the tools nodes, node-invoke and canvas, which use devices by their capabilities. Most of
// their actions call a tool that a device has registered under a conventional name (docs/devices.md). They use
// agent.CallDevice, so all rules for the device's tool also apply here.
//
// It imports agent, agent/access/pairing and registry. Start reading at Registrations in tool.go. commands.go maps
// actions to commands. reach.go selects the devices that a caller reaches.
package nodes

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/agent/tools/internal/localtool"
	"github.com/farhand/farhand/internal/publicnet"
	"github.com/farhand/farhand/registry"
)

// nodes is the tool nodes. It lists devices and their commands, decides pairing requests, and runs the most common
// commands.
type nodes struct {
	reach
	urls publicnet.Guard
}

// Actions of nodes that are not device commands.
const (
	actionStatus   = "status"
	actionDescribe = "describe"
	actionPending  = "pending"
	actionApprove  = "approve"
	actionReject   = "reject"
)

func nodesSpec() registry.ToolSpec {
	return registry.ToolSpec{
		Name: nameNodes,
		Description: "Discover and use devices: status lists them, describe shows what a device can do, pending, " +
			"approve and reject handle pairing requests; notify, camera_snap, camera_list, camera_clip, " +
			"screen_record, screen_snapshot, photos_latest, location_get, notifications_list, device_info, " +
			"device_status, device_health, device_permissions, which and run are carried out by a device. For other " +
			"commands use node-invoke.",
		Parameters: json.RawMessage(`{"type":"object","properties":{` +
			`"action":{"type":"string","enum":["status","describe","pending","approve","reject","notify",` +
			`"camera_snap","camera_list","camera_clip","screen_record","screen_snapshot","photos_latest",` +
			`"location_get","notifications_list","device_info","device_status","device_health",` +
			`"device_permissions","which","run"]},` +
			`"deviceId":{"type":"string","maxLength":256,"description":"device_id or session of the device; may be ` +
			`omitted if only one device can do it"},` +
			`"title":{"type":"string","maxLength":200,"description":"for notify"},` +
			`"body":{"type":"string","maxLength":4000,"description":"for notify"},` +
			`"facing":{"type":"string","enum":["front","back","both"],"description":"for camera_snap and ` +
			`camera_clip"},` +
			`"duration":{"type":["string","number"],"maxLength":20,"description":"for camera_clip and screen_record, ` +
			`such as 10s or 1m; 1 s to 2 min, default 10 s"},` +
			`"command":{"type":"string","maxLength":16384,"description":"for run"},` +
			`"limit":{"type":"integer","minimum":1,"maximum":16,"description":"for photos_latest"},` +
			`"bins":{"type":"array","items":{"type":"string","maxLength":256},"minItems":1,"maxItems":64,` +
			`"description":"for which: names of programs"},` +
			`"code":{"type":"string","maxLength":40,"description":"for approve and reject: the code that the device ` +
			`shows"}},"required":["action"],"additionalProperties":false}`),
	}
}

func (n nodes) check(a arguments) error {
	action := a.text("action")
	if (action == actionApprove || action == actionReject) && a["deviceId"] == nil && a["code"] == nil {
		return fmt.Errorf("the action %s needs the code that the device shows, or the deviceId of a waiting device",
			action)
	}
	return nodeCommands()[action].check(a, n.urls)
}

// nodesTool is the tool nodes.
type nodesTool struct{ deviceTool }

// Authorize implements agent.CallAuthorizer. Only approvers see and decide pairing requests. Calls by a model cannot
// decide them, because the content that the model has read may have injected the request.
func (nodesTool) Authorize(ctx context.Context, caller auth.Identity, args json.RawMessage) error {
	var a arguments
	if err := json.Unmarshal(args, &a); err != nil {
		return err
	}
	switch action := a.text("action"); action {
	case actionApprove, actionReject:
		if agent.AskedByModel(ctx) {
			return registry.Errorf(registry.CodePolicyDenied, "Only a person may approve devices, never "+
				"a model. Ask the person to read the code on the device and run: "+
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

func (n nodes) run(ctx context.Context, a arguments) (registry.Result, error) {
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

// Names of the tools.
const (
	nameNodes  = "nodes"
	nameInvoke = "node-invoke"
	nameCanvas = "canvas"
)

// Directory is the part of registry.Directory that the tools need.
type Directory interface {
	List(ctx context.Context, q registry.Query) ([]registry.Entry, *registry.Cursor, error)
	Awaited(ctx context.Context, q registry.Query) ([]registry.Awaited, error)
}

// Pairing is the part of pairing.Service that the tools need.
type Pairing interface {
	Waiting(ctx context.Context, by pairing.Approver) ([]pairing.View, error)
	Decide(ctx context.Context, by pairing.Approver, id, code string, d pairing.Decision) (pairing.View, error)
	Device(ctx context.Context, by pairing.Approver, id string) (pairing.Device, error)
	Devices(ctx context.Context, by pairing.Approver, after string, limit int) ([]registry.Credential, string, error)
}

// Config configures the tools.
type Config struct {
	Directory Directory     // required
	Policy    *agent.Policy // required; tools that may not be called are not shown
	Pairing   Pairing       // nil: pairing is not available
	Audit     auth.Auditor  // receives decisions about pairing requests; default: discard

	// AllowPrivateURLs lets canvases load private addresses and addresses of the device itself.
	AllowPrivateURLs bool
}

// Registrations returns the tools, for agent.NewLocalTools.
func Registrations(cfg Config) []agent.Registration {
	if cfg.Audit == nil {
		cfg.Audit = auth.NoAudit{}
	}
	urls := publicnet.Guard{AllowPrivate: cfg.AllowPrivateURLs}
	of := func(name string, make func(agent.SessionContext) agent.Tool) agent.Registration {
		return agent.Registration{Names: []string{name}, Make: func(sc agent.SessionContext) []agent.Tool {
			return []agent.Tool{make(sc)}
		}}
	}
	return []agent.Registration{
		of(nameNodes, func(sc agent.SessionContext) agent.Tool {
			n := nodes{reach{&cfg, sc}, urls}
			return nodesTool{newTool(nodesSpec(), n.check, n.run)}
		}),
		of(nameInvoke, func(sc agent.SessionContext) agent.Tool {
			i := invoke{reach{&cfg, sc}, urls}
			return newTool(invokeSpec(), i.check, i.run)
		}),
		of(nameCanvas, func(sc agent.SessionContext) agent.Tool {
			c := canvas{reach{&cfg, sc}, urls}
			return newTool(canvasSpec(), c.check, c.run)
		}),
	}
}

// deviceTool is one of the tools. All call devices.
type deviceTool struct{ localtool.Tool[arguments] }

func newTool(
	spec registry.ToolSpec, check func(arguments) error,
	run func(context.Context, arguments) (registry.Result, error),
) deviceTool {
	spec.TimeoutMS, spec.Annotations = timeoutMS, hints()
	return deviceTool{localtool.Tool[arguments]{Is: spec, Check: check, Run: run}}
}

// CallsDevices implements agent.DeviceCaller.
func (deviceTool) CallsDevices() {}

// hints returns the annotations of the tools: a device may change anything, and its answers may contain untrusted
// content.
func hints() *registry.Annotations {
	return &registry.Annotations{ReadOnlyHint: new(false), DestructiveHint: new(true), OpenWorldHint: new(true)}
}

// timeoutMS is the default timeout of a call, in milliseconds. The device call inside it has its own timeout, and may
// first wait for an approval.
const timeoutMS = 5 * 60 * 1000

// invoke is the tool node-invoke. It runs any command of a device.
type invoke struct {
	reach
	urls publicnet.Guard
}

func invokeSpec() registry.ToolSpec {
	return registry.ToolSpec{
		Name: nameInvoke,
		Description: "Run any command of a device. The action describe of the tool nodes lists " +
			"the commands and their params.",
		Parameters: json.RawMessage(`{"type":"object","properties":{` +
			`"device":{"type":"string","maxLength":256,"description":"device_id or session of the device; may ` +
			`be omitted if only one device has the command"},` +
			`"command":{"type":"string","minLength":1,"maxLength":256},` +
			`"params":{"type":"object","description":"arguments of the command"}},` +
			`"required":["command"],"additionalProperties":false}`),
	}
}

func (i invoke) check(a arguments) error {
	name := a.text("command")
	if !registry.ValidToolName(name) {
		return fmt.Errorf("command: %.80q is not a valid command name", name)
	}
	var params arguments
	if a["params"] != nil {
		if err := json.Unmarshal(a["params"], &params); err != nil {
			return err
		}
	}
	return checkContent(name, params, i.urls)
}

func (i invoke) run(ctx context.Context, a arguments) (res registry.Result, err error) {
	var params registry.JSON
	if a["params"] != nil {
		if params, err = registry.ParseJSON(a["params"]); err != nil {
			return res, err
		}
	}
	return i.call(ctx, a.text("device"), a.text("command"), params, 0)
}

// Package commands maps the commands of OpenClaw nodes to tools of devices. It does no I/O, has no state, and is safe
// for concurrent use.
//
//	what a node declares ──▶ New ──▶ Catalog.Tools, Catalog.LeftOut
//	a call of a tool ──▶ Catalog.Invoke ──▶ Invocation ──▶ the node
//	its answer ──▶ After ──▶ Step: another Invocation, the result, or a question for a person
package commands

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
)

// Node is what a node says about itself when it connects.
type Node struct {
	Platform, DeviceFamily string
	Caps, Commands         []string
	Permissions            map[string]bool // grants of its operating system
}

// Tool is a command of a node as a tool of its device.
type Tool struct {
	Name       string          // of the tool
	Command    string          // of the node
	Definition json.RawMessage // as in register_tools
	Published  int             // its place among the plug-in tools that New got, from 1; 0: it is a command
}

// Call is a call of a tool.
type Call struct {
	Args     registry.JSON // valid by the tool's parameters
	Left     time.Duration // until the caller stops waiting
	Approved bool          // a person decided that this very call may run
}

// Invocation is what a node is asked to do for a call of a tool. A call may need several, one after the other.
type Invocation struct {
	Command string
	Params  json.RawMessage // an object
	Timeout time.Duration   // zero: that of the call

	next func(Answer) Step // nil: the answer ends the call
}

// Answer is a node's answer to an Invocation.
type Answer struct {
	Payload registry.JSON // zero: none
	Failure *Failure      // nil: the command ran
}

// Failure is an error of a node.
type Failure struct{ Code, Message string }

// Step is what follows an answer. Exactly one of its fields counts: the first that is set, else Result.
type Step struct {
	Invoke *Invocation // the node is asked for more

	// Ask is why the node ran nothing and wants a person's decision first. The call goes back to the gateway, which
	// asks a person and calls again with Call.Approved.
	Ask string

	Result registry.Result // the call has ended
}

// LeftOut is a command or a plug-in tool that is no tool here.
type LeftOut struct{ Name, Reason string }

// Rules are the operator's settings for all nodes.
type Rules struct {
	NoPluginTools bool // ignore the tools that nodes publish with node.pluginTools.update
	MaxPlugins    int  // bytes of those tools that are read from one node; zero: no limit
}

// After returns what follows a node's answer to an Invocation of a call.
func After(c *Catalog, tool string, inv Invocation, a Answer) Step {
	if inv.next != nil {
		return inv.next(a)
	}
	if a.Failure != nil {
		return Step{Result: c.Fail(tool, *a.Failure)}
	}
	res, err := c.Result(tool, a.Payload)
	if err != nil {
		return Step{Result: registry.NewResult(false, registry.JSON{}, registry.AsError(err).Message)}
	}
	return Step{Result: res}
}

// codeDenied is the code of a command that the node's exec approvals refuse.
const codeDenied = "SYSTEM_RUN_DENIED"

// maxFailure is how much of a node's message a caller reads, in bytes.
const maxFailure = 4 << 10

// Fail returns the result of a tool whose node failed. The text is the node's, and what to do next.
func (c *Catalog) Fail(tool string, f Failure) registry.Result {
	message := f.Message
	if len(message) > maxFailure {
		message = strings.ToValidUTF8(message[:maxFailure], "") + "…"
	}
	message = strings.TrimPrefix(strings.TrimSpace(textsafe.Clean(message)), "Error: ") // of plug-ins of the node host
	code := textsafe.Line(short(f.Code))
	switch {
	case message == "" && code == "":
		message = "The node failed and did not say why."
	case message == "":
		message = "The node failed: " + code
	case code != "" && !strings.Contains(message, code):
		message = code + ": " + message
	}
	if next := c.next(tool, f); next != "" {
		message += "\n" + next
	}
	return registry.NewResult(false, registry.JSON{}, message)
}

// next returns what to do about a failure; empty: unknown.
func (c *Catalog) next(tool string, f Failure) string {
	code := codeOf(f)
	switch {
	case strings.Contains(f.Message, "SYSTEM_RUN_DISABLED"):
		return "Commands are switched off on the node. To allow them: openclaw approvals set on that machine, or " +
			"exec_approvals_set for an admin."
	case code == codeDenied && strings.Contains(f.Message, "cannot safely bind"):
		return "The node's exec approvals cannot cover a command like this. Run one program with plain arguments, " +
			"without a shell, pipes and interpreters, or relax the node's exec approvals."
	case code == codeDenied:
		return "The exec approvals of the node refused the command. They are on that machine (openclaw approvals) or " +
			"in exec_approvals_get."
	case strings.HasSuffix(code, "BACKGROUND_UNAVAILABLE"), code == "QUEUED_UNTIL_FOREGROUND":
		return "Ask the person to open the app on the device, and call again."
	case strings.HasSuffix(code, "PERMISSION_REQUIRED"), code == "PERMISSION_MISSING", code == "ACCESSIBILITY_REQUIRED":
		return "Ask the person to grant " + c.permissionOf(tool) + " to the app in the settings of the device, and " +
			"call again."
	case strings.HasSuffix(code, "_DISABLED"):
		return "Ask the person to switch this on in the settings of the OpenClaw app on the device."
	case code == "PAYLOAD_TOO_LARGE":
		return "Ask for less: a shorter recording, a smaller picture or a lower quality."
	case code == "LOCATION_TIMEOUT":
		return "The device found no position in time. Call again with a longer timeout_ms, or accept an older " +
			"position with max_age_ms."
	case code == "NODE_NOT_READY":
		return "The node is starting. Call again in a few seconds."
	case code == "TIMEOUT", code == "IDLE_TIMEOUT":
		return "Whether the command had an effect is not known. Check before you call again."
	case code == "MCP_SERVER_UNAVAILABLE":
		return "The MCP server on the node is not running. Restart it there, and call again."
	case strings.Contains(f.Message, "duplex"):
		return "This command works only with OpenClaw's own gateway."
	case isUnsupported(f):
		return "The node declares this command, but does not have it. Update OpenClaw on the node."
	default:
		return ""
	}
}

// codeOf returns the code of a failure. Some nodes have it only at the beginning of the message.
func codeOf(f Failure) string {
	message := strings.TrimPrefix(f.Message, "Error: ")
	if code, _, found := strings.Cut(message, ":"); found && isCode(code) {
		return code
	}
	return f.Code
}

func isCode(s string) bool {
	return s != "" && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// permissionOf returns the name of the permission that a tool needs.
func (c *Catalog) permissionOf(tool string) string {
	if e := c.tools[tool]; e != nil && e.plugin == nil && e.permission != "" {
		return "the permission " + e.permission
	}
	return "the permission"
}

// platform is the operating system of a node.
type platform uint8

const (
	otherPlatform platform = iota
	ios
	watchos
	android
	macos
	windows
	linux
)

// platformOf returns the platform that a node names, such as "iOS 18.4.1", "darwin" or "linux". It decides only how
// commands are called, not which are allowed: that is pairing and policy.
func platformOf(n Node) platform {
	if p := platformNamed(n.Platform); p != otherPlatform {
		return p
	}
	return platformNamed(n.DeviceFamily)
}

func platformNamed(name string) platform {
	name = strings.ToLower(strings.TrimSpace(name))
	for _, p := range []struct {
		prefix string
		is     platform
	}{
		{"ios", ios}, {"ipados", ios}, {"iphone", ios}, {"ipad", ios}, {"watchos", watchos}, {"apple watch", watchos},
		{"android", android}, {"macos", macos}, {"darwin", macos}, {"mac", macos}, {"win", windows}, {"linux", linux},
	} {
		if strings.HasPrefix(name, p.prefix) {
			return p.is
		}
	}
	return otherPlatform
}

// Limits of the labels of a node.
const (
	maxPermissions = 24
	maxPermission  = 40 // bytes
)

// Labels returns the permissions that a node reports as labels of its session: permission/camera is granted or denied.
// A tool is offered also if its permission is denied, for two reasons: phones ask their person for it when the command
// runs, and a list of tools that changes with permissions would need approval again each time.
func Labels(n Node) map[string]string {
	labels := make(map[string]string)
	for _, name := range sortedKeys(n.Permissions) {
		if len(labels) == maxPermissions {
			break
		}
		if name == "" || len(name) > maxPermission || !isWord(name) || textsafe.Line(name) != name {
			continue
		}
		labels["permission/"+name] = "denied"
		if n.Permissions[name] {
			labels["permission/"+name] = "granted"
		}
	}
	return labels
}

// isWord reports whether a name has only characters that keys of labels may have.
func isWord(name string) bool {
	return strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == ""
}

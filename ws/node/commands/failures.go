package commands

import (
	"strings"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
)

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
		return "Ask the person to grant " + c.permissionOf(tool) + " to the app in the settings of the device, and call " +
			"again."
	case strings.HasSuffix(code, "_DISABLED"):
		return "Ask the person to switch this on in the settings of the OpenClaw app on the device."
	case code == "PAYLOAD_TOO_LARGE":
		return "Ask for less: a shorter recording, a smaller picture or a lower quality."
	case code == "LOCATION_TIMEOUT":
		return "The device found no position in time. Call again with a longer timeout_ms, or accept an older position " +
			"with max_age_ms."
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

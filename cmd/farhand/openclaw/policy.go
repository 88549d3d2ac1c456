package openclaw

import (
	"fmt"
	"strings"
)

// names are the tools of commands whose name does not follow from the command (ws/node/commands).
var names = map[string]string{
	"system.notify": "notify", "system.run": "run", "system.which": "which", "canvas.a2ui.pushJSONL": "canvas_a2ui_push",
	"system.execApprovals.get": "exec_approvals_get", "system.execApprovals.set": "exec_approvals_set",
}

// ToolName returns the name that a command has as a tool, empty if it has none.
func ToolName(command string) string {
	if name, ok := names[command]; ok {
		return name
	}
	var b strings.Builder
	for i, r := range command {
		switch {
		case r >= 'A' && r <= 'Z':
			b.WriteString("_" + strings.ToLower(string(r)))
		case r >= 'a' && r <= 'z', r == '_', i > 0 && (r >= '0' && r <= '9' || r == '-'):
			b.WriteRune(r)
		case r == '.':
			b.WriteByte('_')
		default:
			return ""
		}
	}
	if b.Len() > 64 {
		return ""
	}
	return b.String()
}

// Tools returns the names of the tools that a node may offer: those of its approved commands.
func (n Node) Tools() (tools []string) {
	for _, command := range n.Commands {
		if name := ToolName(command); name != "" {
			tools = append(tools, name)
		}
	}
	return tools
}

// YAML returns the policy as a file for FARHAND_POLICY_FILE. It restricts only: Farhand's defaults still apply.
func (p Policy) YAML() string {
	deny := make([]string, 0, len(p.DenyCommands)+1)
	for _, command := range p.DenyCommands {
		if name := ToolName(command); name != "" {
			deny = append(deny, name)
		}
	}
	if p.Run == RunDenied {
		deny = append(deny, ToolName("system.run"))
	}
	b := new(strings.Builder)
	b.WriteString("# Rules of an OpenClaw installation. They apply to tools of all devices.\n" +
		"# Check them with: farhand policy check FILE\nversion: 1\n")
	if len(deny) > 0 {
		fmt.Fprintf(b, "\ncalls:\n  - id: openclaw-commands\n    deny: [%s]\n    reason: The OpenClaw installation did not "+
			"allow this command.\n", `"`+strings.Join(deny, `", "`)+`"`)
	}
	if p.Run == RunAsk {
		b.WriteString("\ntools:\n  - id: openclaw-exec\n    names: run\n    approval: always\n" +
			"    reason: The OpenClaw installation asked before commands.\n")
	}
	return b.String()
}

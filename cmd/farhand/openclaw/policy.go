package openclaw

import (
	"fmt"
	"strings"

	"github.com/farhand/farhand/ws/node/commands"
)

// Tools returns the names of the tools that a node may offer: those of its approved commands.
func (n Node) Tools() (tools []string) {
	for _, command := range n.Commands {
		if name := commands.ToolName(command); name != "" {
			tools = append(tools, name)
		}
	}
	return tools
}

// YAML returns the policy as a file for FARHAND_POLICY_FILE. It restricts only: Farhand's defaults still apply.
func (p Policy) YAML() string {
	deny := make([]string, 0, len(p.DenyCommands)+1)
	for _, command := range p.DenyCommands {
		if name := commands.ToolName(command); name != "" {
			deny = append(deny, name)
		}
	}
	if p.Run == RunDenied {
		deny = append(deny, commands.ToolName("system.run"))
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

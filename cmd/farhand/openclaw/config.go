package openclaw

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/farhand/farhand/ws/node/commands"
)

// Policy is what an installation allows, as far as a policy of Farhand can express it.
type Policy struct {
	DenyCommands []string // never to be called
	Run          Run      // of system.run
}

// Run is how commands of the shell are allowed, the strictest of all settings.
type Run int

// The ways, from the least to the most strict.
const (
	RunUnset  Run = iota // nothing is said: Farhand's default counts
	RunFull              // without a question
	RunAsk               // each command, or each that no list has, is asked about
	RunDenied            // never
)

// optional are the commands that OpenClaw refuses unless gateway.nodes.commands.allow has them
// (its src/gateway/node-command-policy.ts, 2026.9.6).
var optional = []string{
	"calendar.add", "camera.clip", "camera.ptz.control", "camera.snap", "contacts.add", "health.summary",
	"reminders.add", "screen.record", "sms.search", "sms.send",
}

// configFile is the name of the configuration in the state directory.
const configFile = "openclaw.json"

// config is the part of openclaw.json that is read.
type config struct {
	Gateway struct {
		Nodes struct {
			Commands      commandLists     `json:"commands"`
			AllowCommands []string         `json:"allowCommands"` // before 2026.7
			DenyCommands  []string         `json:"denyCommands"`
			PluginTools   *map[string]bool `json:"pluginTools"`
		} `json:"nodes"`
	} `json:"gateway"`
	Tools struct {
		Exec execSettings `json:"exec"`
	} `json:"tools"`
	Agents   json.RawMessage `json:"agents"`
	Channels json.RawMessage `json:"channels"`
}

type commandLists struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

type execSettings struct {
	Mode     string `json:"mode"`
	Security string `json:"security"`
	Ask      string `json:"ask"`
}

func readConfig(dir string, in *Installation) (bool, error) {
	path := filepath.Join(dir, configFile)
	text, err := readFile(path)
	if err != nil || text == nil {
		return false, err
	}
	var c config
	if err := json.Unmarshal(withoutComments(text), &c); err != nil {
		return false, fmt.Errorf("%s: %w. If it is JSON5, have `openclaw doctor --fix` write it again", path, err)
	}
	nodes := c.Gateway.Nodes
	allow := slices.Concat(nodes.Commands.Allow, nodes.AllowCommands)
	in.Policy.DenyCommands = append(in.Policy.DenyCommands, nodes.Commands.Deny...)
	in.Policy.DenyCommands = append(in.Policy.DenyCommands, nodes.DenyCommands...)
	for _, command := range optional {
		if !slices.Contains(allow, command) {
			in.Policy.DenyCommands = append(in.Policy.DenyCommands, command)
		}
	}
	slices.Sort(in.Policy.DenyCommands)
	in.Policy.DenyCommands = slices.Compact(in.Policy.DenyCommands)
	if len(in.Policy.DenyCommands) > 0 {
		in.leaveOut("denied commands in plug-in tools: those tools have names of their own; deny them by name")
	}
	if err := in.stricter(c.Tools.Exec, "tools.exec"); err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	if p := nodes.PluginTools; p != nil && !(*p)["enabled"] {
		in.leaveOut("gateway.nodes.pluginTools: approve the tools of plug-ins one by one instead")
	}
	if len(c.Agents) > 0 {
		in.leaveOut("agents: agents, their models and their own rules are not taken over")
	}
	if len(c.Channels) > 0 {
		in.leaveOut("channels: Farhand serves no chat channels")
	}
	return true, nil
}

// execRules is the document with the approvals of commands.
type execRules struct {
	Version  int                  `json:"version"`
	Defaults execSettings         `json:"defaults"`
	Agents   map[string]agentRule `json:"agents"`
}

type agentRule struct {
	execSettings
	Allowlist []struct {
		Pattern string `json:"pattern"`
	} `json:"allowlist"`
}

// maxPatterns is how many patterns of programs are listed as left out.
const maxPatterns = 20

func (in *Installation) readExecRules(text []byte) error {
	var rules execRules
	if err := json.Unmarshal(text, &rules); err != nil {
		return err
	}
	if rules.Version != 1 {
		return fmt.Errorf("its version is %d, and only 1 is known", rules.Version)
	}
	if err := in.stricter(rules.Defaults, "defaults"); err != nil {
		return err
	}
	var patterns []string
	for id, rule := range rules.Agents {
		if err := in.stricter(rule.execSettings, "agents."+id); err != nil {
			return err
		}
		for _, entry := range rule.Allowlist {
			patterns = append(patterns, entry.Pattern)
		}
	}
	if len(patterns) > 0 {
		slices.Sort(patterns)
		patterns = slices.Compact(patterns)
		in.leaveOut("%d allowed programs (%s): a policy has no list of programs for commands on a device. A person "+
			"is asked, and may allow the same call for some time", len(patterns),
			strings.Join(patterns[:min(len(patterns), maxPatterns)], ", "))
	}
	return nil
}

// stricter adds settings to the rules of commands: the strictest count.
func (in *Installation) stricter(s execSettings, where string) error {
	modes := map[string]Run{
		"": RunUnset, "deny": RunDenied, "allowlist": RunAsk, "ask": RunAsk, "auto": RunAsk, "full": RunFull,
	}
	asks := map[string]Run{"": RunUnset, "off": RunUnset, "on-miss": RunUnset, "always": RunAsk}
	mode, ok := modes[s.Mode]
	security, ok2 := modes[s.Security]
	ask, ok3 := asks[s.Ask]
	if !ok || !ok2 || !ok3 {
		return fmt.Errorf("%s: the mode %q, security %q or ask %q is not known", where, s.Mode, s.Security, s.Ask)
	}
	in.Policy.Run = max(in.Policy.Run, mode, security, ask)
	if s.Mode == "auto" {
		in.leaveOut("%s.mode auto: no model reviews commands here; a person is asked", where)
	}
	return nil
}

// withoutComments removes comments, and commas before a closing bracket, from JSON.
func withoutComments(text []byte) []byte {
	var out bytes.Buffer
	for i := 0; i < len(text); i++ {
		switch rest := text[i:]; {
		case text[i] == '"':
			end := i + 1
			for end < len(text) && text[end] != '"' {
				if text[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end, len(text)-1)
			out.Write(text[i : end+1])
			i = end
		case bytes.HasPrefix(rest, []byte("//")):
			end := bytes.IndexByte(rest, '\n')
			if end < 0 {
				return out.Bytes()
			}
			i += end - 1
		case bytes.HasPrefix(rest, []byte("/*")):
			end := bytes.Index(rest[2:], []byte("*/"))
			if end < 0 {
				return out.Bytes()
			}
			i += end + 3
		case text[i] == ']' || text[i] == '}':
			if kept := bytes.TrimRight(out.Bytes(), " \t\r\n"); bytes.HasSuffix(kept, []byte(",")) {
				out.Truncate(len(kept) - 1)
			}
			out.WriteByte(text[i])
		default:
			out.WriteByte(text[i])
		}
	}
	return out.Bytes()
}

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
		fmt.Fprintf(b, "\ncalls:\n  - id: openclaw-commands\n    deny: [%s]\n    reason: The OpenClaw installation "+
			"did not allow this command.\n", `"`+strings.Join(deny, `", "`)+`"`)
	}
	if p.Run == RunAsk {
		b.WriteString("\ntools:\n  - id: openclaw-exec\n    names: run\n    approval: always\n" +
			"    reason: The OpenClaw installation asked before commands.\n")
	}
	return b.String()
}

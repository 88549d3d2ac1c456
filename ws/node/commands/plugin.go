package commands

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/mcpcontent"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
)

// Times of plug-in tools, as at OpenClaw's gateway.
const (
	pluginTime = 30 * time.Second
	mcpTime    = 2 * time.Minute
)

// mcpCommand calls a tool of an MCP server of the node host.
const mcpCommand = "mcp.tools.call.v1"

// plugin is a tool that a plug-in of the node published, or that an MCP server of the node has.
type plugin struct {
	id, name, about string
	parameters      json.RawMessage
	command         string
	server, tool    string // of MCP; empty: none
}

// addPlugins adds plug-in tools, and returns the commands that they use. They are added before commands only to know
// these; known commands still have their names for themselves.
func (b *builder) addPlugins(tools []json.RawMessage, rules Rules) map[string]bool {
	used := make(map[string]bool)
	if rules.NoPluginTools {
		if len(tools) > 0 {
			b.leaveOut("plug-in tools", "the operator switched them off")
		}
		return used
	}
	declared := make(map[string]bool, len(b.node.Commands))
	for _, name := range b.node.Commands {
		declared[strings.TrimSpace(name)] = true
	}
	b.reserveKnown(declared)
	size := 0
	for i, raw := range tools {
		if i == maxPlugins {
			b.leaveOut("plug-in tools", fmt.Sprintf("a node may publish %d; the others are ignored", maxPlugins))
			break
		}
		if size += len(raw); rules.MaxPlugins > 0 && size > rules.MaxPlugins {
			b.leaveOut("plug-in tools",
				fmt.Sprintf("a node may publish %d bytes of them; the others are ignored", rules.MaxPlugins))
			break
		}
		p, why := readPlugin(raw)
		if why == "" && !declared[p.command] {
			why = "the node does not declare its command " + textsafe.Line(short(p.command))
		}
		if why != "" {
			b.leaveOut(p.name, why)
			continue
		}
		used[p.command] = true
		b.made.size += len(raw) // its parameters are a part of it
		b.addPlugin(p, i+1)
	}
	b.releaseKnown()
	return used
}

// reserveKnown keeps the names of the node's known commands from plug-in tools.
func (b *builder) reserveKnown(declared map[string]bool) {
	for name, c := range b.byName {
		if declared[name] {
			tool := c.tool
			if tool == "" {
				tool = toolName(name)
			}
			b.taken[tool] = reserved
		}
	}
}

// reserved stands for a known command that is not added yet.
const reserved = ""

func (b *builder) releaseKnown() {
	for tool, command := range b.taken {
		if command == reserved {
			delete(b.taken, tool)
		}
	}
}

// addPlugin adds a plug-in tool. If its name is taken, it gets the name of its plug-in in front.
func (b *builder) addPlugin(p *plugin, place int) {
	name := p.name
	if _, taken := b.taken[strings.ToLower(name)]; taken {
		name = prefixed(p)
	}
	b.add(name, &entry{command: &command{name: p.command}, plugin: p, place: place})
}

// prefixed returns the name of a plug-in tool with that of its plug-in in front.
func prefixed(p *plugin) string {
	name := p.id + "_" + p.name
	if len(name) > maxToolName || !registry.ValidToolName(name) || strings.Contains(name, ".") {
		return toolName(name)
	}
	return name
}

// readPlugin reads an element of node.pluginTools.update, and says why it is no tool.
func readPlugin(raw json.RawMessage) (p *plugin, why string) {
	p = &plugin{name: "plug-in tool"}
	fields, err := payload{"", registry.JSON{}}.inner(raw)
	if err != nil {
		return p, "it is no JSON object"
	}
	p.id, p.about = fields.text("pluginId"), fields.text("description")
	p.command = strings.TrimSpace(fields.text("command"))
	name := fields.text("name")
	if !registry.ValidToolName(name) || name[0] == '.' || strings.Contains(name, ".") {
		return p, "its name is not valid"
	}
	p.name = name
	if p.command == "" {
		return p, "it has no command"
	}
	if p.parameters = fields["parameters"]; len(p.parameters) == 0 || p.parameters[0] != '{' {
		p.parameters = json.RawMessage(`{"type":"object","additionalProperties":true}`)
	}
	if mcp, err := (payload{"", registry.JSON{}}).inner(fields["mcp"]); err == nil && p.command == mcpCommand {
		p.server, p.tool = mcp.text("server"), mcp.text("tool")
	}
	return p, ""
}

// definition returns the tool's definition. Nothing is known of its effects, so a person is asked about it.
func (p *plugin) definition(tool string) json.RawMessage {
	timeout := pluginTime
	if p.tool != "" {
		timeout = mcpTime
	}
	b := strictjson.AppendString([]byte(`{"name":`), tool)
	b = strictjson.AppendString(append(b, `,"description":`...), p.about)
	b = append(append(b, `,"parameters":`...), p.parameters...)
	b = fmt.Appendf(b, `,"timeout_ms":%d,"security_level":%q,"tags":[%q,"plugin"]}`,
		timeout.Milliseconds(), confirm, tag)
	return b
}

// invocation returns what the node is asked. Tools of MCP servers share one command.
func (p *plugin) invocation(call Call) Invocation {
	args := call.Args.Raw()
	if call.Args.IsZero() {
		args = json.RawMessage(`{}`)
	}
	if p.tool == "" {
		return Invocation{Command: p.command, Params: args}
	}
	return Invocation{Command: p.command, Params: encodeObject([]member{
		{Name: []byte("server"), Value: quoted(p.server)}, {Name: []byte("tool"), Value: quoted(p.tool)},
		{Name: []byte("arguments"), Value: args},
	})}
}

// result returns the result of a plug-in tool. Those of MCP servers have content blocks.
func (p *plugin) result(out payload) (registry.Result, error) {
	if p.tool == "" {
		return out.result()
	}
	fields, err := out.object()
	if err != nil {
		return registry.Result{}, err
	}
	content := mcpcontent.Reader{Room: maxContent}
	if fields["content"] != nil {
		blocks, err := strictjson.Items(fields["content"])
		if err != nil {
			return registry.Result{}, invalidPayload(out.tool)
		}
		for _, block := range blocks {
			b, err := out.inner(block)
			if err != nil {
				return registry.Result{}, err
			}
			content.Add(readBlock(block, b))
		}
	}
	var structured registry.JSON
	if v := fields["structuredContent"]; len(v) > 0 && v[0] == '{' {
		if structured, err = registry.ParseJSON(v); err != nil {
			return registry.Result{}, invalidPayload(out.tool)
		}
	}
	return content.Result(string(fields["isError"]) != "true", structured), nil
}

// maxContent is how many bytes of data of an MCP result are read. The node host sends at most 20 MB.
const maxContent = 20 << 20

// readBlock reads a content block of MCP. One that cannot be read is its JSON as text.
func readBlock(raw json.RawMessage, f arguments) mcpcontent.Block {
	b := mcpcontent.Block{Type: f.text("type"), Text: f.text("text"), MIMEType: f.text("mimeType")}
	data := f["data"]
	switch b.Type {
	case mcpcontent.Text:
		return b
	case mcpcontent.ResourceLink:
		b.URI, b.Name = f.text("uri"), f.text("name")
		return b
	case mcpcontent.Resource:
		r, err := payload{"", registry.JSON{}}.inner(f["resource"])
		if err != nil {
			return mcpcontent.Block{Type: mcpcontent.Text, Text: string(raw)}
		}
		b.URI, b.Text, b.MIMEType, data = r.text("uri"), r.text("text"), r.text("mimeType"), r["blob"]
		if data == nil {
			return b
		}
	case mcpcontent.Image, mcpcontent.Audio:
	default:
		return mcpcontent.Block{Type: mcpcontent.Text, Text: string(raw)}
	}
	if len(data) > 1 && data[0] == '"' {
		if bytes, err := decodeBase64(data); err == nil && len(bytes) > 0 {
			b.Data = bytes
			return b
		}
	}
	return mcpcontent.Block{Type: mcpcontent.Text, Text: string(raw)}
}

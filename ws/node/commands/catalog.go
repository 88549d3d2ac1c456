package commands

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
)

// New returns the catalog of a node: its commands, and the plug-in tools that it published, as elements of
// node.pluginTools.update. It reads at most maxCommands commands and maxPlugins tools.
func New(node Node, pluginTools []json.RawMessage, rules Rules) *Catalog {
	b := &builder{
		node: node, platform: platformOf(node), byName: make(map[string]*command), taken: make(map[string]string),
		declared: make(map[string]bool), made: &Catalog{tools: make(map[string]*entry)},
	}
	all := known()
	for i := range all {
		b.byName[all[i].name] = &all[i]
	}
	b.made.node, b.made.platform = node, b.platform
	b.addCommands(b.addPlugins(pluginTools, rules))
	b.made.size += sizeOf(node) + len(b.made.left)*leftOutCost
	slices.SortFunc(b.made.list, func(x, y Tool) int { return strings.Compare(x.Name, y.Name) })
	return b.made
}

// Limits of what is read from one node.
const (
	maxCommands    = 512 // commands; the admission of tools is stricter
	maxPlugins     = 128 // plug-in tools, as at OpenClaw's gateway
	maxCommandName = 128 // bytes
)

// Catalog has the tools of one node. It never changes.
type Catalog struct {
	node     Node
	platform platform
	list     []Tool
	tools    map[string]*entry // by the name here
	left     []LeftOut
	prepares bool // the node has system.run.prepare
	size     int
}

// What parts of a catalog take besides their text, in bytes.
const (
	toolCost    = 512 // of a tool: its entries in the list and in maps, and what it is at the node
	textCost    = 64  // of a name that the node declares
	leftOutCost = 256 // of a command that is no tool, with its text
)

// Size returns about how many bytes of memory the catalog takes.
func (c *Catalog) Size() int { return c.size }

// sizeOf returns about how many bytes take what a node says about itself.
func sizeOf(n Node) int {
	size := len(n.Platform) + len(n.DeviceFamily)
	for _, list := range [...][]string{n.Caps, n.Commands} {
		for _, text := range list {
			size += len(text) + textCost
		}
	}
	for name := range n.Permissions {
		size += len(name) + textCost
	}
	return size
}

// entry is one tool.
type entry struct {
	*command
	plugin *plugin // nil: a command
	place  int     // of the plug-in tool, from 1
}

// identity distinguishes the tool from all others of the node.
func (e *entry) identity() string {
	if e.plugin == nil {
		return e.name
	}
	return strings.Join([]string{e.plugin.id, e.plugin.name, e.name, e.plugin.server, e.plugin.tool}, "\x00")
}

// builder makes a catalog.
type builder struct {
	node     Node
	platform platform
	byName   map[string]*command
	declared map[string]bool
	taken    map[string]string // names here, in lower case → commands
	made     *Catalog
}

func (b *builder) leaveOut(name, why string) {
	b.made.left = append(b.made.left, LeftOut{textsafe.Line(short(name)), why})
}

// short cuts a name of a node for the log.
func short(s string) string {
	if len(s) > maxCommandName {
		return strings.ToValidUTF8(s[:maxCommandName], "") + "…"
	}
	return strings.ToValidUTF8(s, "")
}

// addCommands adds the declared commands. Known commands come first, so that no other can take their names. Commands of
// plug-in tools are left out: policy is about the tools.
func (b *builder) addCommands(ofPlugins map[string]bool) {
	var commands []string
	for _, name := range b.node.Commands {
		name = strings.TrimSpace(name)
		if len(commands) == maxCommands {
			b.leaveOut(name, fmt.Sprintf("a node may have %d commands", maxCommands))
			break
		}
		if name != "" && !b.declared[name] {
			b.declared[name] = true
			commands = append(commands, name)
		}
	}
	b.made.prepares = b.declared[prepareCommand]
	slices.SortFunc(commands, func(x, y string) int {
		if known := b.isKnown(y) - b.isKnown(x); known != 0 {
			return known
		}
		return strings.Compare(x, y)
	})
	secret := hidden()
	for _, name := range commands {
		switch why := secret[name]; {
		case why != "":
			b.leaveOut(name, why)
		case strings.HasPrefix(name, workerCommands):
			b.leaveOut(name, secret[workerCommands])
		case ofPlugins[name]:
			b.leaveOut(name, "its plug-in tools are offered")
		case name == "canvas.a2ui.push" && b.declared[pushLines]:
			b.leaveOut(name, "the same as "+pushLines)
		case len(name) > maxCommandName:
			b.leaveOut(name, fmt.Sprintf("the name has more than %d bytes", maxCommandName))
		default:
			b.addCommand(name)
		}
	}
}

func (b *builder) isKnown(name string) int {
	if b.byName[name] != nil {
		return 1
	}
	return 0
}

func (b *builder) addCommand(name string) {
	c := b.byName[name]
	if c == nil {
		c = &command{
			name: name, open: true, level: confirm, does: destroys,
			about: "The command " + textsafe.Line(name) + " of this OpenClaw node. Its parameters are not known here.",
		}
	}
	tool := c.tool
	if tool == "" {
		tool = toolName(name)
	}
	b.add(tool, &entry{command: c})
}

// add adds a tool. If its name is taken, a hash of what it is at the node is appended.
func (b *builder) add(tool string, e *entry) {
	if _, taken := b.taken[strings.ToLower(tool)]; taken {
		tool = hashed(tool, e.identity())
	}
	if _, taken := b.taken[strings.ToLower(tool)]; taken || !registry.ValidToolName(tool) {
		b.leaveOut(e.name, "it has no valid name of its own")
		return
	}
	b.taken[strings.ToLower(tool)] = e.name
	b.made.tools[tool] = e
	definition := b.definition(tool, e)
	b.made.size += len(definition) + toolCost
	b.made.list = append(b.made.list, Tool{Name: tool, Command: e.name, Definition: definition, Published: e.place})
}

const (
	maxToolName = 64 // as registry.ValidToolName
	hashDigits  = 8
)

func hashed(tool, of string) string {
	sum := sha256.Sum256([]byte(of))
	return tool[:min(len(tool), maxToolName-hashDigits-1)] + "_" + hex.EncodeToString(sum[:])[:hashDigits]
}

// toolName returns the name here of a command: callLog.search is call_log_search. Other characters that names must not
// have become underscores.
func toolName(command string) string {
	var b strings.Builder
	for i, r := range command {
		switch {
		case r >= 'A' && r <= 'Z':
			if n := b.Len(); n > 0 && b.String()[n-1] != '_' {
				b.WriteByte('_')
			}
			b.WriteRune(r - 'A' + 'a')
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9' && i > 0, r == '_', r == '-' && i > 0:
			b.WriteRune(r)
		default:
			b.WriteByte('_')
		}
	}
	name := b.String()
	if len(name) > maxToolName {
		return hashed(name, command)
	}
	return name
}

// ToolName returns the name of the tool that a command becomes, for policies. Empty: it never becomes one. A node whose
// commands collide offers the later ones under other names.
func ToolName(command string) string {
	secret := hidden()
	if secret[command] != "" || strings.HasPrefix(command, workerCommands) || command == "" {
		return ""
	}
	for _, c := range known() {
		switch {
		case c.name != command:
		case c.tool != "":
			return c.tool
		default:
			return toolName(command)
		}
	}
	return toolName(command)
}

// definition returns a tool's definition as in register_tools.
func (b *builder) definition(tool string, e *entry) json.RawMessage {
	if e.plugin != nil {
		return e.plugin.definition(tool)
	}
	phone := b.platform == ios || b.platform == android
	spec := registry.ToolSpec{
		Name: tool, Description: e.about, Parameters: e.parameters(), TimeoutMS: e.timeout.Milliseconds(),
		SecurityLevel: e.level, Annotations: e.does.annotations(e.confined),
		Effects: &registry.Effects{
			Class: e.does.class(), Permission: e.permission, NeedsForeground: phone && e.foreground,
		},
		Tags: []string{tag},
	}
	if e.does == sends {
		spec.Effects.Cost = registry.CostMetered
	}
	text, _ := json.Marshal(spec) // cannot fail: its parameters are valid JSON
	return text
}

// tag marks the tools of OpenClaw nodes, for filters.
const tag = "openclaw"

func (e effect) class() registry.EffectClass {
	switch e {
	case reads:
		return registry.ClassRead
	case notifies, sends:
		return registry.ClassPeople
	default:
		return registry.ClassWrite
	}
}

func (e effect) annotations(confined bool) *registry.Annotations {
	a := &registry.Annotations{ReadOnlyHint: new(e == reads), DestructiveHint: new(e == destroys)}
	switch {
	case e == sends || e == destroys:
		a.OpenWorldHint = new(true)
	case confined:
		a.OpenWorldHint = new(false)
	}
	return a
}

// Node returns what the node said about itself.
func (c *Catalog) Node() Node { return c.node }

// Tools returns the tools in the order of their names.
func (c *Catalog) Tools() []Tool { return c.list }

// LeftOut returns the commands and plug-in tools that are no tools here, for the log.
func (c *Catalog) LeftOut() []LeftOut { return c.left }

// Invoke returns what the node is asked first. It fails with an *registry.Error.
func (c *Catalog) Invoke(tool string, call Call) (Invocation, error) {
	e := c.tools[tool]
	if e == nil {
		return Invocation{}, unknownTool(tool)
	}
	a, err := readArguments(call.Args)
	if err != nil {
		return Invocation{}, err
	}
	if e.plugin != nil {
		return e.plugin.invocation(call), nil
	}
	members, err := e.members(c.platform, a)
	if err != nil {
		return Invocation{}, err
	}
	if e.begin != nil {
		return e.begin(c, request{tool: tool, call: call, args: a, members: members})
	}
	return Invocation{Command: e.name, Params: encodeObject(members)}, nil
}

func unknownTool(tool string) error {
	return registry.Errorf(registry.CodeToolNotFound, "The node does not offer the tool %q.", tool).
		With(registry.DispatchedNo)
}

// request is a call that begins.
type request struct {
	tool    string
	call    Call
	args    arguments
	members []member // what the node gets
}

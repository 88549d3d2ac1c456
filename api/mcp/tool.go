package mcp

import (
	"bytes"
	"encoding/json"

	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/mcpcontent"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/legible"
)

// appendTool appends a tool as tools/list has it. at is the session that the tool's reader has to be told of; nil:
// nobody has to.
func appendTool(b []byte, name string, t registry.ToolSpec, d *policy.Decision, at *registry.Session) []byte {
	b = strictjson.AppendString(append(b, `{"name":`...), name)
	if title := titleOf(t, at); title != name {
		b = strictjson.AppendString(append(b, `,"title":`...), title)
	}
	b = strictjson.AppendString(append(b, `,"description":`...), describe(t, at))
	b = appendObjectSchema(append(b, `,"inputSchema":`...), t.Parameters)
	if output := mcpcontent.OutputSchema(t); output != nil {
		b = append(append(b, `,"outputSchema":`...), output...)
	}
	hints, _ := json.Marshal(hintsOf(t.Annotations, d.Effects)) // cannot fail: booleans
	return append(append(append(b, `,"annotations":`...), hints...), '}')
}

// titleOf names a tool, and its device, for people.
func titleOf(t registry.ToolSpec, at *registry.Session) string {
	if at == nil {
		return t.Name
	}
	return t.Name + " (" + deviceName(at) + ")"
}

// deviceName returns what people call the device of a session.
func deviceName(s *registry.Session) string {
	for _, name := range []string{s.DeviceName, s.Name, s.DeviceID} {
		if name = legible.Line(name); name != "" {
			return name
		}
	}
	return s.Key.Session
}

// describe returns the description of a tool, which is never empty.
func describe(t registry.ToolSpec, at *registry.Session) string {
	text := t.Description
	if text == "" {
		text = "The tool " + t.Name + "."
	}
	if at == nil {
		return text
	}
	return text + "\n\nRuns on the device " + deviceName(at) + " (session " + at.Key.Session + ")."
}

// appendObjectSchema appends a schema as it is, if it says at its top that it is one of an object, as MCP demands. Else
// that is added: the arguments of every call are an object.
func appendObjectSchema(b []byte, schema json.RawMessage) []byte {
	const object = `"type":"object"`
	if bytes.HasPrefix(schema, []byte("{"+object)) {
		return append(b, schema...)
	}
	members, err := membersOf(registry.MustJSON(string(schema)))
	if err != nil {
		return append(b, "{"+object+"}"...)
	}
	if says := members.get("type"); says.String() == `"object"` {
		return append(b, schema...)
	}
	b = append(b, "{"+object...)
	for _, m := range members {
		if string(m.Name) == "type" {
			continue
		}
		b = strictjson.AppendString(append(b, ','), string(m.Name))
		b = append(append(b, ':'), m.Value...)
	}
	return append(b, '}')
}

// hintsOf returns what a client is told of the effects of a tool. The operator's word counts, then that of whoever
// registered the tool; of what nobody knows nothing is said, and clients expect the worst.
func hintsOf(said *registry.Annotations, known policy.Effects) registry.Annotations {
	var hints registry.Annotations
	if said != nil {
		hints = *said
	}
	yes, no := true, false
	if known&policy.Unknown == 0 && known&(policy.Changes|policy.Destructive) == 0 {
		hints.ReadOnlyHint, hints.DestructiveHint = &yes, nil
	}
	if known&policy.Changes != 0 {
		hints.ReadOnlyHint = &no
	}
	if known&policy.Destructive != 0 {
		hints.ReadOnlyHint, hints.DestructiveHint = &no, &yes
	}
	if known&policy.OpenWorld != 0 {
		hints.OpenWorldHint = &yes
	}
	return hints
}

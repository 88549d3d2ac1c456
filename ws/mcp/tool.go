package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/internal/fields"
)

// Tool is one tool of an Offer.
type Tool struct {
	Name       string          // here; empty if it has no name
	Definition json.RawMessage // as register_tools has it
	Refused    string          // why it is not offered; empty: it is
	Taken      bool            // it is not offered because another tool of the list has its name here
}

// WithoutOutput returns the definition of a tool without its output schema.
func WithoutOutput(raw json.RawMessage) json.RawMessage {
	_, definition, _ := convert(raw, false)
	return definition
}

// Tool converts one element of an Offer. The list remembers the tool's name.
func (m *Machine) Tool(raw json.RawMessage) Tool {
	theirs, definition, bad := convert(raw, true)
	t := Tool{Name: nameOf(theirs), Definition: definition}
	if bad != nil {
		t.Refused = bad.Message
		return t
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if other, taken := m.list.theirs[t.Name]; taken && other != theirs {
		t.Refused = "another tool of this device, " + fields.Quote(other) + ", has this name here already"
		t.Taken = true
		return t
	}
	m.list.theirs[t.Name] = theirs
	return t
}

// convert converts an MCP tool into a definition of the device protocol, with or without its output schema.
func convert(raw json.RawMessage, output bool) (theirs string, definition json.RawMessage, bad *fields.Error) {
	f, mistake := fields.Open(raw, "must be an object", &bad)
	if mistake != "" {
		return "", nil, fields.Invalid("tool: %s", mistake)
	}
	theirs = f.Text("name")
	if string(fields.Member(f.Value("execution"), "taskSupport")) == `"required"` {
		f.Fail("execution", "this tool runs as a task of MCP only, which this gateway does not begin")
	}
	description := f.OptionalText("description")
	if description == nil || *description == "" {
		description = f.OptionalText("title")
	}
	if len(theirs) > maxTheirName {
		f.Fail("name", "must have at most "+strconv.Itoa(maxTheirName)+" bytes")
		theirs = fields.Short(theirs)
	}
	if bad != nil {
		return theirs, nil, bad
	}
	b := strictjson.AppendString([]byte(`{"name":`), nameOf(theirs))
	if description != nil {
		b = strictjson.AppendString(append(b, `,"description":`...), *description)
	}
	if schema := f.Value("inputSchema"); schema != nil {
		b = append(append(b, `,"parameters":`...), schema...)
	}
	if schema := f.Value("outputSchema"); schema != nil && output {
		b = append(append(b, `,"`+registry.FieldOutputSchema+`":`...), schema...)
	}
	if hints := f.Value("annotations"); hints != nil {
		b = append(append(b, `,"annotations":`...), hints...)
	}
	return theirs, append(b, '}'), nil
}

// MCP allows names of 128 bytes. Old servers have names of any length with any characters.
const (
	maxTheirName   = 256
	maxName        = 64
	nameHashDigits = 8
)

// nameOf returns the name here of an MCP tool. A valid name stays unchanged. Otherwise each invalid character
// becomes an underscore, a name that begins with . or - gets an underscore in front, and a name that is too long ends
// with a part of its hash.
func nameOf(theirs string) string {
	if theirs == "" || registry.ValidToolName(theirs) {
		return theirs
	}
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("_.-", r):
			return r
		default:
			return '_'
		}
	}, theirs)
	if name[0] == '.' || name[0] == '-' {
		name = "_" + name
	}
	if len(name) > maxName {
		sum := sha256.Sum256([]byte(theirs))
		name = name[:maxName-nameHashDigits-1] + "_" + hex.EncodeToString(sum[:])[:nameHashDigits]
	}
	return name
}

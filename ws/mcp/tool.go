package mcp

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/farhand/farhand/agent/mcpcontent"
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

// nameCost is what an entry of a map of names takes besides their text, in bytes.
const nameCost = 64

// NameBytes returns about how many bytes the names of tools at the device take, with those of a list that is read now.
func (m *Machine) NameBytes() (size int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for ours, theirs := range m.theirs {
		size += len(ours) + len(theirs) + nameCost
	}
	if m.list != nil {
		for ours, theirs := range m.list.theirs {
			size += len(ours) + len(theirs) + nameCost
		}
	}
	return size
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
		t.Refused = "another tool of this device already has this name: " + fields.Quote(other)
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
		f.Fail("execution", "this tool runs only as an MCP task, which this gateway does not support")
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
	if effects := fields.Member(f.Value("_meta"), registry.MetaEffects); effects != nil {
		b = append(append(b, `,"effects":`...), effects...)
	}
	if tags := fields.Member(f.Value("_meta"), registry.MetaTags); tags != nil {
		b = append(append(b, `,"tags":`...), tags...)
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

// callResult converts the result of tools/call. agent/mcpcontent has the rules.
func callResult(call string, result json.RawMessage) (any, error) {
	var bad *fields.Error
	r, mistake := fields.Open(result, "must be an object", &bad)
	if mistake != "" {
		return nil, fields.Invalid("result: %s", mistake)
	}
	if kind := r.OptionalText("resultType"); kind != nil && *kind != "complete" {
		return &Failure{call, "The tool requires input from its caller first (" + fields.Short(*kind) +
			"), which this gateway does not support."}, nil
	}
	content := mcpcontent.Reader{Room: registry.MaxInlinePart}
	if r.Value("content") != nil {
		for i, item := range r.Array("content") {
			b, bad := readBlock(item, content.Room)
			if bad != nil {
				return nil, fields.Invalid("content[%d]: %s", i, bad.Message)
			}
			content.Add(b)
		}
	}
	failed := r.OptionalBool("isError")
	structured := r.JSON("structuredContent")
	if bad != nil {
		return nil, bad
	}
	return &Result{call, content.Result(failed == nil || !*failed, structured)}, nil
}

// readBlock decodes one content block. It decodes the block's data only if that has at most room bytes.
func readBlock(item json.RawMessage, room int) (b mcpcontent.Block, bad *fields.Error) {
	f, mistake := fields.Open(item, "must be an object", &bad)
	if mistake != "" {
		return b, fields.Invalid("%s", mistake)
	}
	b.Type = f.Text("type")
	switch b.Type {
	case mcpcontent.Text:
		b.Text = f.Text("text")
	case mcpcontent.Image, mcpcontent.Audio:
		readData(f, &b, "data", room)
	case mcpcontent.ResourceLink:
		b.URI, b.Name = f.Text("uri"), f.TextOr("name", "")
	case mcpcontent.Resource:
		r, mistake := f.Inner("resource", "")
		if r == nil {
			return b, fields.Invalid("resource: must be an object%s", mistake)
		}
		b.URI = r.TextOr("uri", "")
		if r.Value("text") != nil {
			b.Text, b.MIMEType = r.Text("text"), r.TextOr("mimeType", "")
		} else {
			readData(r, &b, "blob", room)
		}
	default: // from a later MCP version; readers of the result may know it
		b.Text = string(item)
	}
	return b, bad
}

func readData(f *fields.Object, b *mcpcontent.Block, key string, room int) {
	b.MIMEType = f.TextOr("mimeType", "")
	v := f.Required(key)
	if v == nil {
		return
	}
	if b.Size = decodedSize(v); v[0] != '"' || b.Size <= room {
		b.Data = f.Data(key, room)
	}
}

func decodedSize(quoted []byte) int {
	text := bytes.Trim(quoted, `"`)
	return base64.StdEncoding.DecodedLen(len(text)) - bytes.Count(text[max(len(text)-2, 0):], []byte{'='})
}

package ws

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/legible"
)

// unnamedMIME is the type of data whose own type is missing or malformed.
const unnamedMIME = "application/octet-stream"

// mcpContent gathers the content of a result of MCP.
type mcpContent struct {
	text  []string
	parts []registry.Part
	room  int // bytes that inline data may still have
	left  int // parts that there is no place for
}

// callResult turns the result of tools/call into what a device of ours would have answered: texts become the output,
// images, audio and files its parts, structured content its structured output.
func (f *fields) callResult(call string, result json.RawMessage) (any, error) {
	members, reason, ok := splitObject(nil, result)
	if !ok {
		if reason == "" {
			reason = "must be an object"
		}
		return nil, invalidMessage("result: %s", reason)
	}
	r := &fields{members, f.err}
	if kind := r.optionalText("resultType"); kind != nil && *kind != "complete" {
		text := "The tool asks its caller for something first (" + short(*kind) + "), which this gateway cannot give."
		return &toolErrorFrame{Type: typeToolError, ID: call, Error: &text}, nil
	}
	content := mcpContent{room: registry.MaxInlinePart}
	if r.value("content") != nil {
		for i, item := range r.array("content") {
			if bad := content.add(item); bad != nil {
				return nil, invalidMessage("content[%d]: %s", i, bad.message)
			}
		}
	}
	failed := r.optionalBool("isError")
	structured := r.json("structuredContent")
	if *r.err != nil {
		return nil, *r.err
	}
	return &toolResultFrame{
		Type: typeToolResult, ID: call, result: content.result(!isTrue(failed), structured),
	}, nil
}

func (c *mcpContent) result(success bool, structured registry.JSON) registry.Result {
	if c.left > 0 {
		c.text = append(c.text, fmt.Sprintf("[%d more parts were left out: a result may have %d]", c.left,
			registry.MaxParts))
	}
	r := registry.Result{Success: success, Output: strings.Join(c.text, "\n"), Structured: structured, Parts: c.parts}
	if r.Output == "" && !structured.IsZero() {
		r.Output = structured.String()
	}
	if !success {
		if r.Output == "" {
			r.Output = "The tool failed and did not say why."
		}
		r.Error = r.Output
	}
	return r
}

// add takes one block of content.
func (c *mcpContent) add(item json.RawMessage) *frameError {
	members, reason, ok := splitObject(nil, item)
	if !ok {
		if reason == "" {
			reason = "must be an object"
		}
		return invalidMessage("%s", reason)
	}
	var bad *frameError
	f := &fields{members, &bad}
	switch typ := f.text("type"); typ {
	case "text":
		c.text = append(c.text, f.text("text"))
	case "image":
		c.data(f, "data", registry.PartImage, "")
	case "audio":
		c.data(f, "data", registry.PartAudio, "")
	case "resource_link":
		c.link(f)
	case "resource":
		inner, reason, ok := splitObject(nil, f.value("resource"))
		if !ok {
			return invalidMessage("resource: must be an object%s", reason)
		}
		c.resource(&fields{inner, &bad})
	default: // of a later version: whoever reads it may know it
		c.text = append(c.text, string(item))
	}
	return bad
}

// link tells of a resource that the tool points to. Nobody fetches what a device names, so it is text.
func (c *mcpContent) link(f *fields) {
	text := f.text("uri")
	if name := f.optionalText("name"); name != nil && *name != "" {
		text = *name + ": " + text
	}
	c.text = append(c.text, text)
}

// resource takes a resource that the result carries whole.
func (c *mcpContent) resource(f *fields) {
	if text := f.optionalText("text"); text != nil {
		c.text = append(c.text, *text)
		return
	}
	name := ""
	if uri := f.optionalText("uri"); uri != nil {
		name = fileNameOf(*uri)
	}
	c.data(f, "blob", registry.PartFile, name)
}

// data takes a member that is base64. What is too large to travel in a result is only told of.
func (c *mcpContent) data(f *fields, key string, typ registry.PartType, name string) {
	part := registry.Part{Type: typ, MIMEType: f.mimeType(), Name: name}
	v := f.required(key)
	if v == nil {
		return
	}
	if len(c.parts) == registry.MaxParts {
		c.left++
		return
	}
	if field, _ := part.Check(); field != "" { // such as an image that says it is text
		part.Type, part.Name = registry.PartFile, ""
	}
	if size := decodedSize(v); v[0] == '"' && size > c.room {
		part.Size = int64(size)
		c.parts = append(c.parts, part)
		return
	}
	part.Data = f.data(key, c.room)
	part.Size = int64(len(part.Data))
	c.room -= len(part.Data)
	c.parts = append(c.parts, part)
}

// decodedSize returns how many bytes a JSON string in base64 stands for.
func decodedSize(quoted []byte) int {
	text := bytes.Trim(quoted, `"`)
	return base64.StdEncoding.DecodedLen(len(text)) - bytes.Count(text[max(len(text)-2, 0):], []byte{'='})
}

// mimeType returns the member mimeType in the form that parts have.
func (f *fields) mimeType() string {
	text := f.optionalText("mimeType")
	if text == nil {
		return unnamedMIME
	}
	kind, _, _ := strings.Cut(*text, ";")
	part := registry.Part{Type: registry.PartFile, MIMEType: strings.ToLower(strings.TrimSpace(kind))}
	if field, _ := part.Check(); field != "" {
		return unnamedMIME
	}
	return part.MIMEType
}

// fileNameOf returns the last part of a URI as the name of a file, empty if that makes none.
func fileNameOf(uri string) string {
	uri, _, _ = strings.Cut(uri, "?")
	name := legible.Line(path.Base(uri))
	part := registry.Part{Type: registry.PartFile, MIMEType: unnamedMIME, Name: name}
	if field, _ := part.Check(); field != "" || name == "." || name == "/" {
		return ""
	}
	return name
}

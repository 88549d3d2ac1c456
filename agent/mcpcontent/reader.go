// Package mcpcontent maps MCP content to tool results and back. Reader makes a result from the answer of an MCP server,
// which may be a device or an upstream. Append writes a result as content for MCP clients.
//
// Text blocks are the output. Images, sounds and resources are parts, with their MIME type and URI. The text of a text
// resource is also in the output, because models read the output. Binary data is never in the output.
package mcpcontent

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
)

// Types of blocks. Blocks of other types, from later versions of MCP, are added as Text with their JSON.
const (
	Text         = "text"
	Image        = "image"
	Audio        = "audio"
	Resource     = "resource"
	ResourceLink = "resource_link"
)

const (
	anyBytes  = "application/octet-stream" // for data whose type is missing or malformed
	plainText = "text/plain"
)

// Block is one block of content as an MCP server sent it. Its fields are unchecked, and texts may have any length.
type Block struct {
	Type     string
	Text     string // of a text, or of a text resource
	Data     []byte // of an image, a sound, or a binary resource
	Size     int    // bytes of data that is not in Data for lack of room
	MIMEType string
	URI      string // of a resource or a link
	Name     string // of a link
}

// Reader makes a result from blocks. It is not safe for concurrent use.
type Reader struct {
	Room int // bytes left for the data of all parts together

	texts []string
	parts []registry.Part
	left  int // parts left out for lack of room
}

// Add adds a block. Data without room is described without its bytes.
func (r *Reader) Add(b Block) {
	switch b.Type {
	case ResourceLink: // only the server can resolve it, and the gateway fetches no URL from strangers
		text := textsafe.Line(b.URI)
		if name := textsafe.Line(b.Name); name != "" {
			text = name + ": " + text
		}
		r.texts = append(r.texts, text)
	case Image, Audio:
		r.data(b)
	case Resource:
		if b.Data != nil || b.Size > 0 {
			r.data(b)
			return
		}
		r.texts = append(r.texts, b.Text)
		if len(b.Text) <= r.Room && len(r.parts) < registry.MaxParts { // otherwise its text is only in the output
			r.resource(b)
		}
	default:
		r.texts = append(r.texts, b.Text)
	}
}

// resource adds a text resource.
func (r *Reader) resource(b Block) {
	b.Data = []byte(b.Text)
	p := partOf(b)
	if p.MIMEType == anyBytes { // it is text, whatever type the server declares
		p.MIMEType = plainText
	}
	p.Type = registry.PartFile // also an SVG
	r.appendPart(p)
}

func (r *Reader) data(b Block) {
	if len(r.parts) == registry.MaxParts {
		r.left++
		return
	}
	p := partOf(b)
	if len(p.Data) > r.Room {
		p.Data = nil
	}
	r.appendPart(p)
}

func (r *Reader) appendPart(p registry.Part) {
	r.Room -= len(p.Data)
	r.parts = append(r.parts, p)
}

// partOf returns a part with a valid description, whatever the server declares.
func partOf(b Block) registry.Part {
	p := registry.Part{
		Type: registry.PartFile, MIMEType: mimeType(b.MIMEType), Data: b.Data, Size: int64(max(len(b.Data), b.Size)),
	}
	switch b.Type {
	case Image:
		p.Type = registry.PartImage
	case Audio:
		p.Type = registry.PartAudio
	default:
		p.Type, p.Name, p.URI = registry.PartTypeOf(p.MIMEType), fileName(b.URI), identifier(b.URI)
	}
	if !isValid(p) { // for example an image with a text type
		p.Type = registry.PartFile
	}
	return p
}

func isValid(p registry.Part) bool {
	field, _ := p.Check()
	return field == ""
}

func mimeType(text string) string {
	kind, _, _ := strings.Cut(text, ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	if !isValid(registry.Part{Type: registry.PartFile, MIMEType: kind}) {
		return anyBytes
	}
	return kind
}

// fileName returns the last segment of a URI as a file name. Empty: it is no valid name.
func fileName(uri string) string {
	uri, _, _ = strings.Cut(uri, "?")
	name := textsafe.Line(path.Base(strings.ToValidUTF8(uri, "")))
	p := registry.Part{Type: registry.PartFile, MIMEType: anyBytes, Name: name}
	if name == "." || name == "/" || !isValid(p) {
		return ""
	}
	return name
}

// identifier returns a URI in the form for parts. Empty: it is invalid or reserved. The scheme farhand: is for the
// gateway's own resources, and ui: makes some MCP clients show a page of the server.
func identifier(uri string) string {
	scheme, _, _ := strings.Cut(strings.TrimSpace(uri), ":") // clients also trim
	reserved := strings.EqualFold(scheme, "farhand") || strings.EqualFold(scheme, "ui")
	if reserved || !isValid(registry.Part{Type: registry.PartFile, MIMEType: anyBytes, URI: uri}) {
		return ""
	}
	return uri
}

// Result returns the result of the added blocks and the structured content, if any.
func (r *Reader) Result(success bool, structured registry.JSON) registry.Result {
	if r.left > 0 {
		r.texts = append(r.texts, fmt.Sprintf("[%d more parts left out: a result may have %d]", r.left,
			registry.MaxParts))
	}
	out := registry.Result{
		Success: success, Output: strings.Join(r.texts, "\n"), Structured: structured, Parts: r.parts,
	}
	if out.Output == "" && !structured.IsZero() {
		out.Output = structured.String()
	}
	out.Output = textsafe.WithoutData(out.Output, r.binary()...)
	if !success {
		if out.Output == "" {
			out.Output = "The tool failed and did not say why."
		}
		out.Error = out.Output
	}
	return out
}

func (r *Reader) binary() (data [][]byte) {
	for i := range r.parts {
		if p := &r.parts[i]; len(p.Data) > 0 && !textual(p.MIMEType) {
			data = append(data, p.Data)
		}
	}
	return data
}

// OutputSchema returns a tool's output schema for MCP clients, nil if there is none. Clients reject a whole list of
// tools if an output schema is not that of an object.
func OutputSchema(t registry.ToolSpec) json.RawMessage {
	members, err := strictjson.LenientMembers(t.OutputSchema, registry.MaxSchemaBytes)
	if err != nil {
		return nil
	}
	for _, m := range members {
		if string(m.Name) == "type" && string(m.Value) == `"object"` {
			return t.OutputSchema
		}
	}
	return nil
}

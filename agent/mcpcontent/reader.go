// Package mcpcontent is the one mapping between the content of MCP and results of tools: Reader makes a result of what
// an MCP server answered, whether it is a device or an upstream, and Append writes a result as content for MCP clients.
//
// Text blocks are the output. Images, sounds and resources are parts, which keep their MIME type and URI. The text of a
// text resource is in the output also, because models read the output. Binary data is never in the output.
package mcpcontent

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/legible"
)

// Types of blocks. Blocks of other types, of later versions of MCP, are added as Text that has their JSON.
const (
	Text         = "text"
	Image        = "image"
	Audio        = "audio"
	Resource     = "resource"
	ResourceLink = "resource_link"
)

const (
	anyBytes  = "application/octet-stream" // the type of data whose own is missing or malformed
	plainText = "text/plain"
)

// Block is one block of content as an MCP server sent it. Nothing in it needs to be checked, and texts may have any
// length.
type Block struct {
	Type     string
	Text     string // of a text, or of a resource that is text
	Data     []byte // of an image, a sound, or a resource that is not text
	Size     int    // bytes of data that is not in Data because there is no room for it
	MIMEType string
	URI      string // of a resource or a link
	Name     string // of a link
}

// Reader makes a result of blocks. It is not safe for concurrent use.
type Reader struct {
	Room int // bytes that the data of parts may still have, all together

	texts []string
	parts []registry.Part
	left  int // parts that there is no place for
}

// Add adds a block. Data for which there is no room is described without its bytes.
func (r *Reader) Add(b Block) {
	switch b.Type {
	case ResourceLink: // only the server could resolve it, and the gateway fetches nothing that a stranger names
		text := legible.Line(b.URI)
		if name := legible.Line(b.Name); name != "" {
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
		if len(b.Text) <= r.Room && len(r.parts) < registry.MaxParts { // else its text is in the output at least
			r.resource(b)
		}
	default:
		r.texts = append(r.texts, b.Text)
	}
}

// resource adds a resource that is text.
func (r *Reader) resource(b Block) {
	if b.MIMEType == "" {
		b.MIMEType = plainText
	}
	b.Data = []byte(b.Text)
	p := partOf(b)
	if p.MIMEType == anyBytes { // it is text, whatever the server calls it
		p.MIMEType = plainText
	}
	p.Type = registry.PartFile // also an SVG
	r.keep(p)
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
	r.keep(p)
}

func (r *Reader) keep(p registry.Part) {
	r.Room -= len(p.Data)
	r.parts = append(r.parts, p)
}

// partOf returns a part whose description is as it must be, whatever the server says of it.
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
	if field, _ := p.Check(); field != "" { // such as an image that says it is text
		p.Type = registry.PartFile
	}
	return p
}

// mimeType returns a MIME type as parts have it.
func mimeType(text string) string {
	kind, _, _ := strings.Cut(text, ";")
	p := registry.Part{Type: registry.PartFile, MIMEType: strings.ToLower(strings.TrimSpace(kind))}
	if field, _ := p.Check(); field != "" {
		return anyBytes
	}
	return p.MIMEType
}

// fileName returns the last part of a URI as the name of a file, empty if that makes none.
func fileName(uri string) string {
	uri, _, _ = strings.Cut(uri, "?")
	name := legible.Line(path.Base(strings.ToValidUTF8(uri, "")))
	p := registry.Part{Type: registry.PartFile, MIMEType: anyBytes, Name: name}
	if field, _ := p.Check(); field != "" || name == "." || name == "/" {
		return ""
	}
	return name
}

// identifier returns a URI as parts have it, empty if they cannot. Resources of the gateway itself are its alone, and
// ui: has some clients of MCP show a page of the server's.
func identifier(uri string) string {
	scheme, _, _ := strings.Cut(strings.TrimSpace(uri), ":") // clients trim, too
	p := registry.Part{Type: registry.PartFile, MIMEType: anyBytes, URI: uri}
	if field, _ := p.Check(); field != "" || strings.EqualFold(scheme, "farhand") || strings.EqualFold(scheme, "ui") {
		return ""
	}
	return uri
}

// Result returns the result of the blocks that were added, and of structured content, if there is any.
func (r *Reader) Result(success bool, structured registry.JSON) registry.Result {
	if r.left > 0 {
		r.texts = append(r.texts, fmt.Sprintf("[%d more parts were left out: a result may have %d]", r.left,
			registry.MaxParts))
	}
	out := registry.Result{
		Success: success, Output: strings.Join(r.texts, "\n"), Structured: structured, Parts: r.parts,
	}
	if out.Output == "" && !structured.IsZero() {
		out.Output = structured.String()
	}
	out.Output = legible.WithoutData(out.Output, r.binary()...)
	if !success {
		if out.Output == "" {
			out.Output = "The tool failed and did not say why."
		}
		out.Error = out.Output
	}
	return out
}

// binary returns the data of the parts that are not text.
func (r *Reader) binary() (data [][]byte) {
	for i := range r.parts {
		if p := &r.parts[i]; len(p.Data) > 0 && !textual(p.MIMEType) {
			data = append(data, p.Data)
		}
	}
	return data
}

// OutputSchema returns the output schema of a tool as MCP clients take it, nil if there is none. Clients refuse a whole
// list of tools for an output schema that is not one of an object.
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

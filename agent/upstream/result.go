package upstream

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/legible"
)

const (
	anyBytes    = "application/octet-stream"
	plainText   = "text/plain"
	maxFileName = 255 // bytes
)

// resultOf returns an answer as a result. Its size is bounded by whoever runs local tools.
func resultOf(res *mcp.CallToolResult, server string) registry.Result {
	if res.NeedsInput() {
		text := fmt.Sprintf("The tool asks for something more, and the gateway lets no MCP server ask (%s). "+
			"Say everything in the arguments.", server)
		return registry.Result{Output: text, Error: text}
	}
	out := registry.Result{Success: !res.IsError}
	var texts []string
	for _, c := range res.Content {
		switch c := c.(type) {
		case *mcp.TextContent:
			texts = append(texts, c.Text)
		case *mcp.ImageContent:
			out.Parts = append(out.Parts, part(c.MIMEType, "", c.Data))
		case *mcp.AudioContent:
			out.Parts = append(out.Parts, part(c.MIMEType, "", c.Data))
		case *mcp.EmbeddedResource:
			if r := c.Resource; r != nil {
				out.Parts = append(out.Parts, resourcePart(r))
			}
		case *mcp.ResourceLink: // only the server could resolve it, and nobody fetches what a stranger names
			texts = append(texts, fmt.Sprintf("Link to %s: %s", legible.Line(c.Name), legible.Line(c.URI)))
		}
	}
	out.Output = strings.Join(texts, "\n")
	if res.StructuredContent != nil {
		out.Structured = structured(res.StructuredContent)
	}
	if out.Output == "" && !out.Structured.IsZero() {
		out.Output = out.Structured.String()
	}
	if !out.Success {
		if out.Output == "" {
			out.Output = "The tool failed and said nothing."
		}
		out.Error = out.Output
	}
	return out
}

// structured returns structured content, nothing if it is no JSON as ours.
func structured(content any) registry.JSON {
	text, err := json.Marshal(content)
	if err != nil {
		return registry.JSON{}
	}
	v, err := registry.ParseJSON(text)
	if err != nil {
		return registry.JSON{}
	}
	return v
}

// resourcePart returns a resource that came with the answer.
func resourcePart(r *mcp.ResourceContents) registry.Part {
	name := path.Base(strings.TrimRight(r.URI, "/"))
	if r.Blob == nil {
		kind := r.MIMEType
		if kind == "" {
			kind = plainText
		}
		return part(kind, name, []byte(r.Text))
	}
	return part(r.MIMEType, name, r.Blob)
}

// part returns a part whose description is as it must be, whatever the server says of it.
func part(mimeType, name string, data []byte) registry.Part {
	kind, _, _ := strings.Cut(mimeType, ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	name = legible.Line(strings.ToValidUTF8(name, ""))
	for len(name) > maxFileName {
		_, n := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-n]
	}
	p := registry.Part{Type: registry.PartTypeOf(kind), MIMEType: kind, Name: name, Data: data, Size: int64(len(data))}
	if field, _ := p.Check(); field == "mime_type" {
		p.Type, p.MIMEType = registry.PartFile, anyBytes
	}
	if field, _ := p.Check(); field == "name" {
		p.Name = ""
	}
	return p
}

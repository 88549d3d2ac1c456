package upstream

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/farhand/farhand/agent/mcpcontent"
	"github.com/farhand/farhand/registry"
)

// resultOf returns an answer as a result. Its size is bounded by whoever runs local tools.
func resultOf(res *mcp.CallToolResult, server string) registry.Result {
	if res.NeedsInput() {
		text := fmt.Sprintf("The tool asks for something more, and the gateway lets no MCP server ask (%s). "+
			"Say everything in the arguments.", server)
		return registry.Result{Output: text, Error: text}
	}
	content := mcpcontent.Reader{Room: math.MaxInt} // local tools have a place for what is too large to be inline
	for _, c := range res.Content {
		content.Add(blockOf(c))
	}
	return content.Result(!res.IsError, structured(res.StructuredContent))
}

// blockOf returns a block of content as agent/mcpcontent has it.
func blockOf(content mcp.Content) mcpcontent.Block {
	switch c := content.(type) {
	case *mcp.ImageContent:
		return mcpcontent.Block{Type: mcpcontent.Image, Data: c.Data, MIMEType: c.MIMEType}
	case *mcp.AudioContent:
		return mcpcontent.Block{Type: mcpcontent.Audio, Data: c.Data, MIMEType: c.MIMEType}
	case *mcp.ResourceLink:
		return mcpcontent.Block{Type: mcpcontent.ResourceLink, URI: c.URI, Name: c.Name}
	case *mcp.EmbeddedResource:
		if r := c.Resource; r != nil {
			return mcpcontent.Block{
				Type: mcpcontent.Resource, Text: r.Text, Data: r.Blob, MIMEType: r.MIMEType, URI: r.URI,
			}
		}
	case *mcp.TextContent:
		return mcpcontent.Block{Type: mcpcontent.Text, Text: c.Text}
	}
	return mcpcontent.Block{}
}

// structured returns structured content, nothing if there is none, or if it is no JSON as ours.
func structured(content any) registry.JSON {
	if content == nil {
		return registry.JSON{}
	}
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

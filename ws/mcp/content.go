package mcp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"

	"github.com/farhand/farhand/agent/mcpcontent"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/internal/fields"
)

// callResult converts the result of tools/call. agent/mcpcontent has the rules.
func callResult(call string, result json.RawMessage) (any, error) {
	var bad *fields.Error
	r, mistake := fields.Open(result, "must be an object", &bad)
	if mistake != "" {
		return nil, fields.Invalid("result: %s", mistake)
	}
	if kind := r.OptionalText("resultType"); kind != nil && *kind != "complete" {
		return &Failure{call, "The tool asks its caller for something first (" + fields.Short(*kind) +
			"), which this gateway cannot give."}, nil
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

// readData decodes a base64 member and its MIME type.
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

// decodedSize returns the number of bytes that a base64 JSON string decodes to.
func decodedSize(quoted []byte) int {
	text := bytes.Trim(quoted, `"`)
	return base64.StdEncoding.DecodedLen(len(text)) - bytes.Count(text[max(len(text)-2, 0):], []byte{'='})
}

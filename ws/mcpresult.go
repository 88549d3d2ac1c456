package ws

import (
	"bytes"
	"encoding/base64"
	"encoding/json"

	"github.com/farhand/farhand/agent/mcpcontent"
	"github.com/farhand/farhand/registry"
)

// callResult turns the result of tools/call into what a device of ours would have answered: agent/mcpcontent has the
// rules.
func (f *fields) callResult(call string, result json.RawMessage) (any, error) {
	members, reason, ok := splitObject(nil, result)
	if !ok {
		if reason == "" {
			reason = "must be an object"
		}
		return nil, invalidMessage("result: %s", reason)
	}
	r := &fields{members: members, err: f.err}
	if kind := r.optionalText("resultType"); kind != nil && *kind != "complete" {
		text := "The tool asks its caller for something first (" + short(*kind) + "), which this gateway cannot give."
		return &toolErrorFrame{Type: typeToolError, ID: call, Error: &text}, nil
	}
	content := mcpcontent.Reader{Room: registry.MaxInlinePart}
	if r.value("content") != nil {
		for i, item := range r.array("content") {
			block, bad := mcpBlock(item, content.Room)
			if bad != nil {
				return nil, invalidMessage("content[%d]: %s", i, bad.message)
			}
			content.Add(block)
		}
	}
	failed := r.optionalBool("isError")
	structured := r.json("structuredContent")
	if *r.err != nil {
		return nil, *r.err
	}
	return &toolResultFrame{
		Type: typeToolResult, ID: call, result: content.Result(!isTrue(failed), structured),
	}, nil
}

// mcpBlock reads one block of content. Its data is decoded only if it has at most room bytes.
func mcpBlock(item json.RawMessage, room int) (mcpcontent.Block, *frameError) {
	members, reason, ok := splitObject(nil, item)
	if !ok {
		if reason == "" {
			reason = "must be an object"
		}
		return mcpcontent.Block{}, invalidMessage("%s", reason)
	}
	var bad *frameError
	f := &fields{members: members, err: &bad}
	b := mcpcontent.Block{Type: f.text("type")}
	switch b.Type {
	case mcpcontent.Text:
		b.Text = f.text("text")
	case mcpcontent.Image, mcpcontent.Audio:
		f.blockData(&b, "data", room)
	case mcpcontent.ResourceLink:
		b.URI, b.Name = f.text("uri"), f.textOr("name", "")
	case mcpcontent.Resource:
		inner, reason, ok := splitObject(nil, f.value("resource"))
		if !ok {
			return b, invalidMessage("resource: must be an object%s", reason)
		}
		r := &fields{members: inner, err: &bad}
		b.URI = r.textOr("uri", "")
		if r.value("text") != nil {
			b.Text, b.MIMEType = r.text("text"), r.textOr("mimeType", "")
		} else {
			r.blockData(&b, "blob", room)
		}
	default: // of a later version: a reader of the result may know it
		b.Text = string(item)
	}
	return b, bad
}

// blockData reads a member that is base64, and its type.
func (f *fields) blockData(b *mcpcontent.Block, key string, room int) {
	b.MIMEType = f.textOr("mimeType", "")
	v := f.required(key)
	if v == nil {
		return
	}
	if b.Size = decodedSize(v); v[0] != '"' || b.Size <= room {
		b.Data = f.data(key, room)
	}
}

// decodedSize returns how many bytes a JSON string in base64 stands for.
func decodedSize(quoted []byte) int {
	text := bytes.Trim(quoted, `"`)
	return base64.StdEncoding.DecodedLen(len(text)) - bytes.Count(text[max(len(text)-2, 0):], []byte{'='})
}

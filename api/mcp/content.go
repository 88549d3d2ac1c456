package mcp

import (
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// appendContent appends the members of a result to a call that ran. What the tool said comes first, then its parts. A
// failure is told as text too, because models read nothing else.
func (r *request) appendContent(b []byte, out *agent.Outcome) []byte {
	res := &out.Result
	b = append(b, `"content":[`...)
	text := res.Output
	if !res.Success && text == "" {
		text = res.Error
	}
	if text != "" || len(res.Parts) == 0 {
		b = appendText(b, text)
	}
	for i := range res.Parts {
		if b[len(b)-1] != '[' {
			b = append(b, ',')
		}
		b = r.appendPart(b, &res.Parts[i], partURI(out.CallID, i))
	}
	b = append(b, ']')
	if v := res.Structured; v.IsObject() || r.modern && !v.IsZero() { // earlier revisions allow nothing but objects
		b = append(append(b, `,"structuredContent":`...), v.Raw()...)
	}
	if !res.Success {
		b = append(b, `,"isError":true`...)
	}
	return b
}

func appendText(b []byte, text string) []byte {
	return append(strictjson.AppendString(append(b, `{"type":"text","text":`...), text), '}')
}

// appendInvalid appends the members of a result that says what is wrong with the arguments, so that a model can mend
// them.
func appendInvalid(b []byte, e *registry.Error) []byte {
	var text strings.Builder
	text.WriteString(e.Message)
	for _, v := range e.Violations {
		text.WriteString("\n" + v.Pointer + ": " + v.Message)
	}
	return append(appendText(append(b, `"content":[`...), text.String()), `],"isError":true`...)
}

// partURI names a part of a result. It cannot be read by this name: the part is in the result.
func partURI(callID string, i int) string {
	return "farhand://calls/" + callID + "/parts/" + strconv.Itoa(i)
}

// appendPart appends a part of a result: an image or sound inline, a file as a resource, and what travels as a link, as
// one. The link expires. It is absolute: behind a bridge a client does not even know the gateway's address.
func (r *request) appendPart(b []byte, p *registry.Part, uri string) []byte {
	switch {
	case p.URL != "":
		b = strictjson.AppendString(append(b, `{"type":"resource_link","uri":`...), r.Origin+p.URL)
		b = strictjson.AppendString(append(b, `,"name":`...), partName(p))
		b = strictjson.AppendString(append(b, `,"mimeType":`...), p.MIMEType)
		return append(strconv.AppendInt(append(b, `,"size":`...), p.Size, 10), '}')
	case len(p.Data) == 0:
		return appendText(b, "["+partName(p)+", "+p.MIMEType+", "+strconv.FormatInt(p.Size, 10)+" bytes, was not kept]")
	case p.Type == registry.PartFile:
		b = strictjson.AppendString(append(b, `{"type":"resource","resource":{"uri":`...), uri)
		b = strictjson.AppendString(append(b, `,"mimeType":`...), p.MIMEType)
		if isText(p) {
			return append(strictjson.AppendString(append(b, `,"text":`...), string(p.Data)), "}}"...)
		}
		return append(base64.StdEncoding.AppendEncode(append(b, `,"blob":"`...), p.Data), `"}}`...)
	default:
		b = strictjson.AppendString(append(b, `{"type":`...), string(p.Type))
		b = append(base64.StdEncoding.AppendEncode(append(b, `,"data":"`...), p.Data), '"')
		return append(strictjson.AppendString(append(b, `,"mimeType":`...), p.MIMEType), '}')
	}
}

// isText reports whether a file is text that a model can read.
func isText(p *registry.Part) bool {
	return (strings.HasPrefix(p.MIMEType, "text/") || p.MIMEType == "application/json") && utf8.Valid(p.Data)
}

// partName returns what a part is called.
func partName(p *registry.Part) string {
	if p.Name != "" {
		return p.Name
	}
	return string(p.Type)
}

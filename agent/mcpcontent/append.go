package mcpcontent

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
)

// Style controls how a result is written. Text, names and the strings of structured content are cleaned of invisible
// characters (textsafe.Clean), because a model reads them.
type Style struct {
	CallID string // identifies parts without a URI
	Origin string // prefix that makes links absolute: behind a bridge, a client does not know the address

	AnyStructured bool // structured content may be any JSON; older MCP revisions allow only objects

	// Exact adds the output as a file with the bytes that the tool returned. Text parts also become files of bytes.
	Exact bool
}

// Append appends a result as members of a CallToolResult: the output first, then the parts. The text of a failure is
// also content, because models read nothing else.
func (s Style) Append(b []byte, res *registry.Result) []byte {
	b = append(b, `"content":[`...)
	failed := !res.Success || len(res.Violations) > 0
	// Clients discard an answer that breaks the announced output schema. That includes failures, which need not match
	// the schema. Their text has the same information.
	structured := !failed && (res.Structured.IsObject() || s.AnyStructured && !res.Structured.IsZero())
	content := res.Structured.Raw()
	if structured {
		content, structured = textsafe.CleanJSON(content)
	}
	text := res.Output
	if !res.Success && text == "" {
		text = res.Error
	}
	text, isText := splitOutput(text, res.Parts)
	if structured { // which has the complete data
		text = textsafe.WithoutData(textsafe.Clean(text))
	}
	if text != "" || len(res.Parts) == 0 {
		b = AppendText(b, text)
	}
	if remark := res.Remark(); remark != "" {
		b = AppendText(comma(b), remark)
	}
	for i := range res.Parts {
		b = s.appendPart(comma(b), &res.Parts[i], i, isText[i] && !s.Exact)
	}
	if s.Exact {
		b = s.appendExact(comma(b), res)
	}
	b = append(b, ']')
	if structured {
		b = append(append(b, `,"structuredContent":`...), content...)
	}
	if failed {
		b = append(b, `,"isError":true`...)
	}
	return b
}

// comma separates the next element of an array.
func comma(b []byte) []byte {
	if b[len(b)-1] == '[' {
		return b
	}
	return append(b, ',')
}

func (s Style) appendExact(b []byte, res *registry.Result) []byte {
	mimeType, output := "text/plain", res.Output
	switch {
	case !res.Structured.IsZero():
		mimeType, output = "application/json", res.Structured.String()
	case output == "":
		output = res.Error
	}
	b = append(append(b, `{"type":"resource","resource":{"uri":"farhand://calls/`...), s.CallID...)
	b = append(append(b, `/output","mimeType":"`...), mimeType...)
	return append(base64.StdEncoding.AppendEncode(append(b, `","blob":"`...), []byte(output)), `"}}`...)
}

// AppendText appends a cleaned text block.
func AppendText(b []byte, text string) []byte {
	return append(strictjson.AppendString(append(b, `{"type":"text","text":`...), textsafe.Clean(text)), '}')
}

// splitOutput returns an output without the texts of resources, which follow as parts. It also returns which parts are
// text: these resources, and files with a text MIME type.
func splitOutput(output string, parts []registry.Part) (rest string, isText []bool) {
	isText = make([]bool, len(parts))
	for i := range parts {
		p := &parts[i]
		if p.Type != registry.PartFile || !utf8.Valid(p.Data) {
			continue
		}
		isText[i] = textual(p.MIMEType)
		if p.URI != "" && len(p.Data) > 0 {
			var found bool
			output, found = cutLines(output, string(p.Data))
			isText[i] = isText[i] || found
		}
	}
	return output, isText
}

func cutLines(text, lines string) (rest string, found bool) {
	before, after, found := strings.Cut("\n"+text+"\n", "\n"+lines+"\n")
	if !found {
		return text, false
	}
	return strings.Trim(before+"\n"+after, "\n"), true
}

// appendPart appends a part: images and sounds inline, files and resources as a resource, and parts with a URL as a
// link. The link expires.
func (s Style) appendPart(b []byte, p *registry.Part, i int, isText bool) []byte {
	switch {
	case p.URL != "":
		b = strictjson.AppendString(append(b, `{"type":"resource_link","uri":`...), s.Origin+p.URL)
		b = strictjson.AppendString(append(b, `,"name":`...), partName(p))
		b = strictjson.AppendString(append(b, `,"mimeType":`...), p.MIMEType)
		return append(strconv.AppendInt(append(b, `,"size":`...), p.Size, 10), '}')
	case len(p.Data) == 0 && p.Size > 0:
		return AppendText(b, "["+partName(p)+", "+p.MIMEType+", "+strconv.FormatInt(p.Size, 10)+" bytes, not stored]")
	case p.Type == registry.PartFile || p.URI != "":
		b = strictjson.AppendString(append(b, `{"type":"resource","resource":{"uri":`...), s.uri(p, i))
		b = strictjson.AppendString(append(b, `,"mimeType":`...), p.MIMEType)
		if isText {
			return append(strictjson.AppendString(append(b, `,"text":`...), textsafe.Clean(string(p.Data))), "}}"...)
		}
		return append(base64.StdEncoding.AppendEncode(append(b, `,"blob":"`...), p.Data), `"}}`...)
	default:
		b = strictjson.AppendString(append(b, `{"type":`...), string(p.Type))
		b = append(base64.StdEncoding.AppendEncode(append(b, `,"data":"`...), p.Data), '"')
		return append(strictjson.AppendString(append(b, `,"mimeType":`...), p.MIMEType), '}')
	}
}

// uri returns the identifier of a part. It cannot be fetched: the part is in the result.
func (s Style) uri(p *registry.Part, i int) string {
	if p.URI != "" {
		return textsafe.Line(p.URI)
	}
	return "farhand://calls/" + s.CallID + "/parts/" + strconv.Itoa(i)
}

func textual(mimeType string) bool {
	return strings.HasPrefix(mimeType, "text/") || mimeType == "application/json" ||
		strings.HasSuffix(mimeType, "+json") || strings.HasSuffix(mimeType, "+xml")
}

func partName(p *registry.Part) string {
	if p.Name != "" {
		return textsafe.Line(p.Name)
	}
	return string(p.Type)
}

// Meta returns the _meta of a tool in MCP's format: the effects and tags that it declares, nil if none. Its annotations
// are listed anyway.
func Meta(t registry.ToolSpec) json.RawMessage {
	meta := make(map[string]any, 2)
	if t.Effects != nil {
		meta[registry.MetaEffects] = t.Effects
	}
	if len(t.Tags) > 0 {
		meta[registry.MetaTags] = t.Tags
	}
	if len(meta) == 0 {
		return nil
	}
	text, _ := json.Marshal(meta) // cannot fail: texts, a boolean and a number
	return text
}

package mcpcontent

import (
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/legible"
)

// Style says how a result is written. A model reads it, so text, names and the strings of structured content are
// cleaned of what a reader would not see (legible.Clean).
type Style struct {
	CallID string // names parts that have no URI
	Origin string // stands before links, which are absolute: behind a bridge a client does not know the address

	AnyStructured bool // structured content may be any JSON; earlier revisions of MCP allow objects only

	// Exact adds the output as a file, byte for byte as the tool returned it, and makes files of text bytes, too.
	Exact bool
}

// Append appends a result as the members of a CallToolResult: the output first, then the parts. The text of a failure
// is content also, because models read nothing else.
func (s Style) Append(b []byte, res *registry.Result) []byte {
	b = append(b, `"content":[`...)
	structured := res.Structured.IsObject() || s.AnyStructured && !res.Structured.IsZero()
	// Clients throw an answer away that breaks the schema which they were told, also that of a failure, which need not
	// keep it. What it says stands in its text.
	structured = structured && res.Success && len(res.Violations) == 0
	content := res.Structured.Raw()
	if structured {
		content, structured = legible.CleanJSON(content)
	}
	text := res.Output
	if !res.Success && text == "" {
		text = res.Error
	}
	text, isText := splitOutput(text, res.Parts)
	if structured { // which has the data whole
		text = legible.WithoutData(legible.Clean(text))
	}
	if text != "" || len(res.Parts) == 0 {
		b = AppendText(b, text)
	}
	if remark := res.Remark(); remark != "" {
		if b[len(b)-1] != '[' {
			b = append(b, ',')
		}
		b = AppendText(b, remark)
	}
	for i := range res.Parts {
		if b[len(b)-1] != '[' {
			b = append(b, ',')
		}
		b = s.appendPart(b, &res.Parts[i], i, isText[i] && !s.Exact)
	}
	if s.Exact {
		b = s.appendExact(b, res)
	}
	b = append(b, ']')
	if structured {
		b = append(append(b, `,"structuredContent":`...), content...)
	}
	if !res.Success || len(res.Violations) > 0 {
		b = append(b, `,"isError":true`...)
	}
	return b
}

// appendExact appends the output of a tool as a file. There is always content before it.
func (s Style) appendExact(b []byte, res *registry.Result) []byte {
	mimeType, output := "text/plain", res.Output
	switch {
	case !res.Structured.IsZero():
		mimeType, output = "application/json", res.Structured.String()
	case output == "":
		output = res.Error
	}
	b = append(append(b, `,{"type":"resource","resource":{"uri":"farhand://calls/`...), s.CallID...)
	b = append(append(b, `/output","mimeType":"`...), mimeType...)
	return append(base64.StdEncoding.AppendEncode(append(b, `","blob":"`...), []byte(output)), `"}}`...)
}

// AppendText appends a block of text, cleaned.
func AppendText(b []byte, text string) []byte {
	return append(strictjson.AppendString(append(b, `{"type":"text","text":`...), legible.Clean(text)), '}')
}

// splitOutput returns an output without the texts of resources, which follow it as parts, and which parts are text:
// those resources, and files whose MIME type says so.
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

// cutLines returns a text without the first place where other lines stand in it, if they do.
func cutLines(text, lines string) (rest string, found bool) {
	before, after, found := strings.Cut("\n"+text+"\n", "\n"+lines+"\n")
	if !found {
		return text, false
	}
	return strings.Trim(before+"\n"+after, "\n"), true
}

// appendPart appends a part: an image or a sound inline, a file or what was a resource as a resource, and what travels
// as a link, as one. The link expires.
func (s Style) appendPart(b []byte, p *registry.Part, i int, isText bool) []byte {
	switch {
	case p.URL != "":
		b = strictjson.AppendString(append(b, `{"type":"resource_link","uri":`...), s.Origin+p.URL)
		b = strictjson.AppendString(append(b, `,"name":`...), partName(p))
		b = strictjson.AppendString(append(b, `,"mimeType":`...), p.MIMEType)
		return append(strconv.AppendInt(append(b, `,"size":`...), p.Size, 10), '}')
	case len(p.Data) == 0 && p.Size > 0:
		return AppendText(b, "["+partName(p)+", "+p.MIMEType+", "+strconv.FormatInt(p.Size, 10)+" bytes, was not kept]")
	case p.Type == registry.PartFile || p.URI != "":
		b = strictjson.AppendString(append(b, `{"type":"resource","resource":{"uri":`...), s.uri(p, i))
		b = strictjson.AppendString(append(b, `,"mimeType":`...), p.MIMEType)
		if isText {
			return append(strictjson.AppendString(append(b, `,"text":`...), legible.Clean(string(p.Data))), "}}"...)
		}
		return append(base64.StdEncoding.AppendEncode(append(b, `,"blob":"`...), p.Data), `"}}`...)
	default:
		b = strictjson.AppendString(append(b, `{"type":`...), string(p.Type))
		b = append(base64.StdEncoding.AppendEncode(append(b, `,"data":"`...), p.Data), '"')
		return append(strictjson.AppendString(append(b, `,"mimeType":`...), p.MIMEType), '}')
	}
}

// uri returns what a part is identified by. Nothing can be read by it: the part is in the result.
func (s Style) uri(p *registry.Part, i int) string {
	if p.URI != "" {
		return legible.Line(p.URI)
	}
	return "farhand://calls/" + s.CallID + "/parts/" + strconv.Itoa(i)
}

// textual reports whether data of a MIME type is text.
func textual(mimeType string) bool {
	return strings.HasPrefix(mimeType, "text/") || mimeType == "application/json" ||
		strings.HasSuffix(mimeType, "+json") || strings.HasSuffix(mimeType, "+xml")
}

// partName returns what a part is called.
func partName(p *registry.Part) string {
	if p.Name != "" {
		return legible.Line(p.Name)
	}
	return string(p.Type)
}

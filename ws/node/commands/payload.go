package commands

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
)

// payload is what a command returned.
type payload struct {
	tool string
	raw  registry.JSON
}

// Result returns the result of a tool whose command ran. Its parts may have more data than registry.MaxInlinePart: the
// caller stores what does not fit as files. It fails with an *registry.Error if the payload is not what the command
// returns.
func (c *Catalog) Result(tool string, raw registry.JSON) (registry.Result, error) {
	e := c.tools[tool]
	if e == nil {
		return registry.Result{}, unknownTool(tool)
	}
	p := payload{tool, raw}
	if f := p.failure(); f != nil {
		return c.Fail(tool, *f), nil
	}
	switch {
	case e.plugin != nil:
		return e.plugin.result(p)
	case e.result != nil:
		return e.result(p)
	default:
		return p.result()
	}
}

// maxMembers is how many members of an object of a payload are read.
const maxMembers = 10_000

func invalidPayload(tool string) error {
	return registry.Errorf(registry.CodeInvalidResult, "The node's answer to %s is not what the command returns.", tool)
}

// object returns the members of a payload.
func (p payload) object() (arguments, error) {
	members, err := strictjson.LenientMembers(p.raw.Raw(), maxMembers)
	if p.raw.IsZero() || err != nil {
		return nil, invalidPayload(p.tool)
	}
	fields := make(arguments, len(members))
	for _, m := range members {
		fields[string(m.Name)] = m.Value
	}
	return fields, nil
}

// failure returns the failure in a payload with ok false: some commands report theirs so. Nil: it has none.
func (p payload) failure() *Failure {
	if !p.raw.IsObject() || !bytes.Contains(p.raw.Raw(), []byte(`"ok"`)) {
		return nil
	}
	fields, err := p.object()
	if err != nil || string(fields["ok"]) != "false" {
		return nil
	}
	f := Failure{Code: fields.text("code"), Message: fields.text("message")}
	if f.Message == "" {
		f.Message = fields.text("error")
	}
	return &f
}

// result returns a payload as a result: its data in base64 becomes parts, the rest is structured.
func (p payload) result() (registry.Result, error) {
	if p.raw.IsZero() || p.raw.String() == "null" {
		return registry.Result{Success: true, Output: "Done."}, nil
	}
	m := media{tool: p.tool}
	clean, err := m.clean(p.raw.Raw(), mediaDepth)
	if err != nil {
		return registry.Result{}, err
	}
	structured := p.raw
	if len(m.parts) > 0 {
		if structured, err = registry.ParseJSON(clean); err != nil {
			return registry.Result{}, invalidPayload(p.tool)
		}
	}
	res := registry.NewResult(true, structured, "")
	res.Parts = m.parts
	if res.Output = textsafe.WithoutData(res.Output); len(m.parts) > 0 && m.saysLittle(structured) {
		res.Output = m.about()
	}
	return res, nil
}

// mediaDepth is how deep data in base64 may be in a payload: photos.latest has it in objects of an array.
const mediaDepth = 4

// media takes data in base64 out of a payload.
type media struct {
	tool  string
	parts []registry.Part
}

// Members with data. dir.fetch has an archive.
const (
	memberBase64 = "base64"
	memberTar    = "tarBase64"
)

// clean returns a value with the data of its objects replaced by the index of their part.
func (m *media) clean(value json.RawMessage, depth int) (json.RawMessage, error) {
	if depth == 0 || !bytes.Contains(value, []byte(`ase64"`)) {
		return value, nil
	}
	switch value[0] {
	case '{':
		return m.cleanObject(value, depth)
	case '[':
		items, err := strictjson.Items(value)
		if err != nil {
			return nil, invalidPayload(m.tool)
		}
		b := []byte{'['}
		for i, item := range items {
			if item, err = m.clean(item, depth-1); err != nil {
				return nil, err
			}
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, item...)
		}
		return append(b, ']'), nil
	default:
		return value, nil
	}
}

func (m *media) cleanObject(value json.RawMessage, depth int) (json.RawMessage, error) {
	members, err := strictjson.LenientMembers(value, maxMembers)
	if err != nil {
		return nil, invalidPayload(m.tool)
	}
	fields := make(arguments, len(members))
	for _, member := range members {
		fields[string(member.Name)] = member.Value
	}
	kept := members[:0:0]
	for _, member := range members {
		name := string(member.Name)
		if (name == memberBase64 || name == memberTar) && member.Value[0] == '"' {
			place, err := m.add(fields, member.Value, name)
			if err != nil {
				return nil, err
			}
			kept = with(kept, "part", place)
			continue
		}
		if member.Value, err = m.clean(member.Value, depth-1); err != nil {
			return nil, err
		}
		kept = append(kept, member)
	}
	return encodeObject(kept), nil
}

// add adds a part, and returns its index as JSON. null: there are too many.
func (m *media) add(fields arguments, quoted json.RawMessage, member string) (json.RawMessage, error) {
	if len(m.parts) == registry.MaxParts {
		return json.RawMessage("null"), nil
	}
	data, err := decodeBase64(quoted)
	if err != nil || len(data) == 0 {
		return nil, registry.Errorf(registry.CodeInvalidResult, "The node's answer to %s has no valid base64.", m.tool)
	}
	mimeType := mimeTypeOf(fields)
	if member == memberTar {
		mimeType = "application/gzip"
	}
	p := registry.Part{
		Type: registry.PartTypeOf(mimeType), MIMEType: mimeType, Data: data, Size: int64(len(data)),
		Name: m.fileName(fields, mimeType),
	}
	m.parts = append(m.parts, p)
	return strconv.AppendInt(nil, int64(len(m.parts)-1), 10), nil
}

// decodeBase64 decodes a JSON string in base64, with or without padding.
func decodeBase64(quoted json.RawMessage) ([]byte, error) {
	digits := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(digits, '\\') >= 0 {
		digits = []byte(strictjson.Text(quoted))
	}
	digits = bytes.TrimRight(digits, "=")
	data := make([]byte, base64.RawStdEncoding.DecodedLen(len(digits)))
	n, err := base64.RawStdEncoding.Decode(data, digits)
	return data[:n], err
}

// anyBytes is the type of data of which none is known.
const anyBytes = "application/octet-stream"

// formats are the types of the formats that nodes name.
func formats() map[string]string {
	return map[string]string{
		"jpg": "image/jpeg", "jpeg": "image/jpeg", "png": "image/png", "webp": "image/webp", "heic": "image/heic",
		"mp4": "video/mp4", "mov": "video/quicktime", "webm": "video/webm",
		"m4a": "audio/mp4", "mp3": "audio/mpeg", "wav": "audio/wav", "ogg": "audio/ogg",
	}
}

// mimeTypeOf returns the MIME type of the data of an object.
func mimeTypeOf(fields arguments) string {
	kind, _, _ := strings.Cut(strings.ToLower(fields.text("mimeType")), ";")
	if kind = strings.TrimSpace(kind); kind == "" {
		kind = formats()[strings.ToLower(fields.text("format"))]
	}
	p := registry.Part{Type: registry.PartFile, MIMEType: kind}
	if field, _ := p.Check(); field != "" {
		return anyBytes
	}
	return kind
}

// fileName returns a name for the data of an object: that of its path, or of the tool.
func (m *media) fileName(fields arguments, mimeType string) string {
	path := fields.text("path")
	name := path[strings.LastIndexAny(path, `/\`)+1:]
	p := registry.Part{Type: registry.PartFile, MIMEType: anyBytes, Name: name}
	if field, _ := p.Check(); name != "" && field == "" {
		return name
	}
	name = m.tool
	if n := len(m.parts); n > 0 {
		name += "_" + strconv.Itoa(n+1)
	}
	return name + extension(mimeType)
}

// extension returns the extension of a file with this type; empty: unknown.
func extension(mimeType string) string {
	switch mimeType {
	case "image/jpeg":
		return ".jpg"
	case "application/gzip":
		return ".tar.gz"
	}
	for format, kind := range formats() {
		if kind == mimeType {
			return "." + format
		}
	}
	return ""
}

// saysLittle reports whether a payload is only a description of its one part.
func (m *media) saysLittle(structured registry.JSON) bool {
	const little = 400 // bytes
	return len(m.parts) == 1 && structured.Len() <= little
}

// about describes the one part for a model.
func (m *media) about() string {
	p := &m.parts[0]
	return m.tool + ": " + p.Name + ", " + p.MIMEType + ", " + strconv.FormatInt(p.Size, 10) + " bytes"
}

// maxInlineText is how much of a text file a model reads, in bytes. The file is a part in any case.
const maxInlineText = 64 << 10

// file returns the result of file.fetch: a text is also the output.
func file(p payload) (registry.Result, error) {
	res, err := p.result()
	if err != nil || len(res.Parts) != 1 {
		return res, err
	}
	part := &res.Parts[0]
	isText := strings.HasPrefix(part.MIMEType, "text/") || part.MIMEType == "application/json"
	if isText && len(part.Data) <= maxInlineText && utf8.Valid(part.Data) {
		res.Output = textsafe.WithoutData(string(part.Data))
	}
	return res, nil
}

// location returns a position as other devices report it.
func location(p payload) (registry.Result, error) {
	fields, err := p.object()
	if err != nil || fields["lat"] == nil || fields["lon"] == nil {
		return registry.Result{}, invalidPayload(p.tool)
	}
	var out []member
	for _, f := range [...]struct{ here, theirs string }{
		{"latitude", "lat"}, {"longitude", "lon"}, {"accuracy_m", "accuracyMeters"}, {"altitude_m", "altitudeMeters"},
		{"speed_mps", "speedMps"}, {"heading_deg", "headingDeg"}, {"at", "timestamp"}, {"precise", "isPrecise"},
		{"source", "source"},
	} {
		if v := fields[f.theirs]; v != nil && string(v) != "null" {
			out = with(out, f.here, v)
		}
	}
	return structured(p.tool, encodeObject(out))
}

// cameras returns a list of cameras as other devices report it.
func cameras(p payload) (registry.Result, error) {
	fields, err := p.object()
	if err != nil {
		return registry.Result{}, err
	}
	devices, err := strictjson.Items(fields["devices"])
	if err != nil {
		return registry.Result{}, invalidPayload(p.tool)
	}
	list := []byte{'['}
	for i, device := range devices {
		camera, err := payload{p.tool, registry.MustJSON("{}")}.inner(device)
		if err != nil {
			return registry.Result{}, err
		}
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, encodeObject([]member{
			{Name: []byte("id"), Value: quoted(camera.text("id"))},
			{Name: []byte("facing"), Value: quoted(camera.text("position"))},
			{Name: []byte("name"), Value: quoted(camera.text("name"))},
		})...)
	}
	return structured(p.tool, append(list, ']'))
}

// inner returns the members of an object in a payload.
func (p payload) inner(value json.RawMessage) (arguments, error) {
	raw, err := registry.ParseJSON(value)
	if err != nil {
		return nil, invalidPayload(p.tool)
	}
	return payload{p.tool, raw}.object()
}

func structured(tool string, text []byte) (registry.Result, error) {
	value, err := registry.ParseJSON(text)
	if err != nil {
		return registry.Result{}, invalidPayload(tool)
	}
	return registry.NewResult(true, value, ""), nil
}

package ws

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// fields reads the members of one object. It stores the first error, a missing member or a wrong type, at err. The
// error is behind a pointer so that members can stay on the caller's stack although the error is returned.
type fields struct {
	members []strictjson.Member
	err     **frameError
	asked   *[]string // names of the members read, including absent ones; nil: not recorded
	ignored []string  // paths of unread members of inner objects; only if asked is set
}

// unread returns the names of the unread members, and the paths of unread members of inner objects. asked must be set.
func (f *fields) unread() []string {
	var names []string
	for _, m := range f.members {
		if name := string(m.Name); !slices.Contains(*f.asked, name) {
			names = append(names, short(strings.ToValidUTF8(name, "")))
		}
	}
	return append(names, f.ignored...)
}

func (f *fields) fail(key, must string) {
	if *f.err == nil {
		*f.err = invalidMessage("%s: %s", key, must)
	}
}

// value returns a member as it was sent, nil if it is absent or null.
func (f *fields) value(key string) json.RawMessage {
	if f.asked != nil {
		*f.asked = append(*f.asked, key)
	}
	for _, m := range f.members {
		if string(m.Name) == key {
			if string(m.Value) == "null" {
				return nil
			}
			return m.Value
		}
	}
	return nil
}

// json is value as checked JSON, the zero value if the member is absent or null.
func (f *fields) json(key string) registry.JSON {
	for _, m := range f.members {
		if string(m.Name) == key && string(m.Value) != "null" {
			return m.Checked()
		}
	}
	return registry.JSON{}
}

// required is value for a required member.
func (f *fields) required(key string) json.RawMessage {
	v := f.value(key)
	if v == nil {
		f.fail(key, "is required")
	}
	return v
}

func (f *fields) text(key string) string {
	v := f.required(key)
	if v == nil {
		return ""
	}
	if v[0] != '"' {
		f.fail(key, "must be a string")
		return ""
	}
	return strictjson.Text(v)
}

// id returns the member id, which must not be empty.
func (f *fields) id() string {
	id := f.text("id")
	if id == "" {
		f.fail("id", "must not be empty")
	}
	return id
}

func (f *fields) optionalText(key string) *string {
	if f.value(key) == nil {
		return nil
	}
	s := f.text(key)
	return &s
}

// textOr is text for a member that may be missing.
func (f *fields) textOr(key, otherwise string) string {
	if s := f.optionalText(key); s != nil {
		return *s
	}
	return otherwise
}

// resumeToken returns a token of valid length. The error does not contain the token, because it is a secret.
func (f *fields) resumeToken(key string) *string {
	token := f.optionalText(key)
	if token != nil && (len(*token) < minResumeToken || len(*token) > maxResumeToken) {
		f.fail(key, fmt.Sprintf("must have %d to %d bytes, as the one of session_start has",
			minResumeToken, maxResumeToken))
	}
	return token
}

func (f *fields) optionalBool(key string) *bool {
	v := f.value(key)
	if v == nil {
		return nil
	}
	b := string(v) == "true"
	if !b && string(v) != "false" {
		f.fail(key, "must be true or false")
	}
	return &b
}

func (f *fields) optionalInt(key string) *int64 {
	v := f.value(key)
	if v == nil {
		return nil
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		f.fail(key, "must be a whole number")
	}
	return &n
}

func (f *fields) optionalNumber(key string) json.RawMessage {
	v := f.value(key)
	if v == nil {
		return nil
	}
	if _, err := strconv.ParseFloat(string(v), 64); err != nil { // in valid JSON only numbers parse
		f.fail(key, "must be a number, and a finite one")
	}
	return v
}

func (f *fields) array(key string) []json.RawMessage {
	v := f.required(key)
	if v == nil {
		return nil
	}
	if v[0] != '[' {
		f.fail(key, "must be an array")
		return nil
	}
	items, err := strictjson.Items(v)
	if err != nil {
		f.fail(key, err.Error())
	}
	return items
}

func (f *fields) texts(key string) []string {
	items := f.array(key)
	texts := make([]string, len(items))
	for i, item := range items {
		if item[0] != '"' {
			f.fail(fmt.Sprintf("%s[%d]", key, i), "must be a string")
			return nil
		}
		texts[i] = strictjson.Text(item)
	}
	return texts
}

func (f *fields) optionalTexts(key string) []string {
	if f.value(key) == nil {
		return nil
	}
	return f.texts(key)
}

// labels returns an object of strings. Keys that differ only in case are different labels.
func (f *fields) labels(key string) map[string]string {
	v := f.value(key)
	if v == nil {
		return nil
	}
	members, reason, ok := appendMembers(nil, v)
	if !ok {
		f.fail(key, reason)
		return nil
	}
	labels := make(map[string]string, len(members))
	for _, m := range members {
		if m.Value[0] != '"' {
			f.fail(key+"."+short(string(m.Name)), "must be a string")
			return nil
		}
		labels[string(m.Name)] = strictjson.Text(m.Value)
	}
	return labels
}

// annotations returns MCP's hints. It records unknown hints as ignored.
func (f *fields) annotations(key string) *registry.Annotations {
	v := f.value(key)
	if v == nil {
		return nil
	}
	members, reason, _ := splitObject(nil, v)
	if reason != "" {
		f.fail(key, reason)
		return nil
	}
	var bad *frameError
	hints := &fields{members: members, err: &bad, asked: new([]string)}
	a := &registry.Annotations{
		ReadOnlyHint:    hints.optionalBool("readOnlyHint"),
		DestructiveHint: hints.optionalBool("destructiveHint"),
		IdempotentHint:  hints.optionalBool("idempotentHint"),
		OpenWorldHint:   hints.optionalBool("openWorldHint"),
	}
	if bad != nil {
		f.fail(key, bad.message)
	}
	for _, name := range hints.unread() {
		f.ignored = append(f.ignored, key+"."+name)
	}
	if *a == (registry.Annotations{}) {
		return nil
	}
	return a
}

// maxEcho is how many bytes of a device's text an error repeats.
const maxEcho = 128

// short cuts s to maxEcho bytes.
func short(s string) string {
	if len(s) <= maxEcho {
		return s
	}
	return truncate(s, maxEcho) + "…"
}

func quoteShort(s string) string { return strconv.Quote(strings.ToValidUTF8(short(s), "")) }

// parts returns the images, sounds and files of a result. It checks their total size before it decodes each.
func (f *fields) parts(key string) []registry.Part {
	if f.value(key) == nil {
		return nil
	}
	items := f.array(key)
	if len(items) > registry.MaxParts {
		f.fail(key, fmt.Sprintf("must have at most %d elements", registry.MaxParts))
		return nil
	}
	var parts []registry.Part
	room := registry.MaxInlinePart
	for i, item := range items {
		part, bad := decodePart(item, room)
		if bad != nil {
			f.fail(fmt.Sprintf("%s[%d]", key, i), bad.message)
			return nil
		}
		room -= len(part.Data)
		parts = append(parts, part)
	}
	return parts
}

// decodePart decodes one element of parts. Its data may have at most room bytes.
func decodePart(data []byte, room int) (registry.Part, *frameError) {
	members, reason, ok := splitObject(nil, data)
	if !ok {
		if reason == "" {
			reason = "must be valid JSON"
		}
		return registry.Part{}, invalidMessage("%s", reason)
	}
	var bad *frameError
	f := fields{members: members, err: &bad}
	part := registry.Part{Type: registry.PartType(f.text("type")), MIMEType: f.text("mime_type")}
	if name := f.optionalText("name"); name != nil {
		part.Name = *name
	}
	if f.value("data") == nil && f.value("url") != nil {
		part.URL, part.Size = f.slot("url"), f.size("size")
	} else {
		part.Data = f.data("data", room)
		part.Size = int64(len(part.Data))
		if size := f.optionalInt("size"); size != nil && *size != part.Size {
			f.fail("size", fmt.Sprintf("must be %d, as many bytes as data has", part.Size))
		}
	}
	if bad != nil {
		return part, bad
	}
	if field, must := part.Check(); field != "" {
		f.fail(field, must)
	}
	return part, bad
}

// data decodes a base64 member of 1 to most bytes.
func (f *fields) data(key string, most int) []byte {
	v := f.required(key)
	if v == nil {
		return nil
	}
	const bad = "must be a string in base64, with padding and without line breaks"
	if v[0] != '"' {
		f.fail(key, bad)
		return nil
	}
	if len(v)-len(`""`) > base64.StdEncoding.EncodedLen(most) {
		f.fail(key, fmt.Sprintf("is too long: all parts of a result together may have %d bytes",
			registry.MaxInlinePart))
		return nil
	}
	text := strictjson.Text(v)
	data, err := base64.StdEncoding.Strict().DecodeString(text)
	switch {
	case err != nil || strings.ContainsAny(text, "\r\n"): // line breaks, which the decoder skips
		f.fail(key, bad)
	case len(data) == 0:
		f.fail(key, "must not be empty")
	case len(data) > most:
		f.fail(key, fmt.Sprintf("is too long: all parts of a result together may have %d bytes",
			registry.MaxInlinePart))
	}
	return data
}

// slot returns a member that is the URL of an upload_slot, exactly as the gateway sent it. Other URLs from a device are
// rejected, because readers of the result would fetch them.
func (f *fields) slot(key string) string {
	url := f.text(key)
	if secret, ok := strings.CutPrefix(url, registry.PathUpload); !ok || !registry.ValidBlobSecret(secret) {
		f.fail(key, "must be the url of an upload_slot; otherwise send data")
	}
	return url
}

// size returns a member that is a number of bytes, at least 1.
func (f *fields) size(key string) int64 {
	f.required(key)
	n := f.optionalInt(key)
	if n == nil {
		return 0
	}
	if *n < 1 {
		f.fail(key, "must be a number of bytes, at least 1")
	}
	return *n
}

package ws

import (
	"fmt"
	"strings"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/internal/fields"
)

// frameFields reads the members of a frame, and of the objects in it.
type frameFields struct{ fields.Object }

// id returns the member id, which must not be empty.
func (f *frameFields) id() string {
	id := f.Text("id")
	if id == "" {
		f.Fail("id", "must not be empty")
	}
	return id
}

// resumeToken returns a token of valid length. The error does not contain the token, because it is a secret.
func (f *frameFields) resumeToken(key string) *string {
	token := f.OptionalText(key)
	if token != nil && (len(*token) < minResumeToken || len(*token) > maxResumeToken) {
		f.Fail(key, fmt.Sprintf("must have %d to %d bytes, as the one of session_start has",
			minResumeToken, maxResumeToken))
	}
	return token
}

// labels returns an object of strings. Keys that differ only in case are different labels.
func (f *frameFields) labels(key string) map[string]string {
	v := f.Value(key)
	if v == nil {
		return nil
	}
	members, reason, ok := fields.SplitMap(nil, v)
	if !ok {
		f.Fail(key, reason)
		return nil
	}
	labels := make(map[string]string, len(members))
	for _, m := range members {
		if m.Value[0] != '"' {
			f.Fail(key+"."+fields.Short(string(m.Name)), "must be a string")
			return nil
		}
		labels[string(m.Name)] = strictjson.Text(m.Value)
	}
	return labels
}

// annotations returns MCP's hints. It records unknown hints as ignored.
func (f *frameFields) annotations(key string) *registry.Annotations {
	v := f.Value(key)
	if v == nil {
		return nil
	}
	members, reason, _ := fields.Split(nil, v)
	if reason != "" {
		f.Fail(key, reason)
		return nil
	}
	var bad *fields.Error
	hints := fields.Recording(members, &bad)
	a := &registry.Annotations{
		ReadOnlyHint:    hints.OptionalBool("readOnlyHint"),
		DestructiveHint: hints.OptionalBool("destructiveHint"),
		IdempotentHint:  hints.OptionalBool("idempotentHint"),
		OpenWorldHint:   hints.OptionalBool("openWorldHint"),
	}
	if bad != nil {
		f.Fail(key, bad.Message)
	}
	for _, name := range hints.Unread() {
		f.Ignore(key + "." + name)
	}
	if *a == (registry.Annotations{}) {
		return nil
	}
	return a
}

// parts returns the images, sounds and files of a result. It checks their total size before it decodes each.
func (f *frameFields) parts(key string) []registry.Part {
	if f.Value(key) == nil {
		return nil
	}
	items := f.Array(key)
	if len(items) > registry.MaxParts {
		f.Fail(key, fmt.Sprintf("must have at most %d elements", registry.MaxParts))
		return nil
	}
	var parts []registry.Part
	room := registry.MaxInlinePart
	for i, item := range items {
		part, bad := decodePart(item, room)
		if bad != nil {
			f.Fail(fmt.Sprintf("%s[%d]", key, i), bad.Message)
			return nil
		}
		room -= len(part.Data)
		parts = append(parts, part)
	}
	return parts
}

// decodePart decodes one element of parts. Its data may have at most room bytes.
func decodePart(data []byte, room int) (registry.Part, *fields.Error) {
	var bad *fields.Error
	o, mistake := fields.Open(data, "must be valid JSON", &bad)
	if mistake != "" {
		return registry.Part{}, fields.Invalid("%s", mistake)
	}
	f := frameFields{*o}
	part := registry.Part{Type: registry.PartType(f.Text("type")), MIMEType: f.Text("mime_type")}
	if name := f.OptionalText("name"); name != nil {
		part.Name = *name
	}
	if f.Value("data") == nil && f.Value("url") != nil {
		part.URL, part.Size = f.slot("url"), f.size("size")
	} else {
		part.Data = f.Data("data", room)
		part.Size = int64(len(part.Data))
		if size := f.OptionalInt("size"); size != nil && *size != part.Size {
			f.Fail("size", fmt.Sprintf("must be %d, as many bytes as data has", part.Size))
		}
	}
	if bad != nil {
		return part, bad
	}
	if field, must := part.Check(); field != "" {
		f.Fail(field, must)
	}
	return part, bad
}

// slot returns a member that is the URL of an upload_slot, exactly as the gateway sent it. Other URLs from a device are
// rejected, because readers of the result would fetch them.
func (f *frameFields) slot(key string) string {
	url := f.Text(key)
	if secret, ok := strings.CutPrefix(url, registry.PathUpload); !ok || !registry.ValidBlobSecret(secret) {
		f.Fail(key, "must be the url of an upload_slot; otherwise send data")
	}
	return url
}

// size returns a member that is a number of bytes, at least 1.
func (f *frameFields) size(key string) int64 {
	f.Required(key)
	n := f.OptionalInt(key)
	if n == nil {
		return 0
	}
	if *n < 1 {
		f.Fail(key, "must be a number of bytes, at least 1")
	}
	return *n
}

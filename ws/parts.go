package ws

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// parts returns the images, sounds and files of a result. All of them together are bounded before any is decoded.
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

// decodePart decodes one element of parts, whose data may have at most room bytes.
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

// data returns a member that is base64 of 1 to most bytes.
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
	case err != nil || strings.ContainsAny(text, "\r\n"): // which the decoder skips
		f.fail(key, bad)
	case len(data) == 0:
		f.fail(key, "must not be empty")
	case len(data) > most:
		f.fail(key, fmt.Sprintf("is too long: all parts of a result together may have %d bytes",
			registry.MaxInlinePart))
	}
	return data
}

// slot returns a member that is the URL of an upload_slot, as that was sent. Other addresses are not taken from a
// device: whoever reads the result would fetch what it names.
func (f *fields) slot(key string) string {
	url := f.text(key)
	if secret, ok := strings.CutPrefix(url, registry.PathUpload); !ok || !registry.ValidBlobSecret(secret) {
		f.fail(key, "must be the url of an upload_slot; otherwise send data")
	}
	return url
}

// size returns a member that is a number of bytes, at least one.
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

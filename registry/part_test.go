package registry

import (
	"strings"
	"testing"
)

// TestPartsAreChecked: what a part says of itself is bounded, plain, and consistent.
func TestPartsAreChecked(t *testing.T) {
	for _, good := range []Part{
		{Type: PartImage, MIMEType: "image/png", Size: 3, Name: "Küche 1.png"},
		{Type: PartAudio, MIMEType: "audio/ogg"},
		{Type: PartFile, MIMEType: "image/svg+xml", URI: "file:///a/Küche 1.svg"},
		{Type: PartFile, MIMEType: "application/vnd.oasis.opendocument.text"},
	} {
		if field, must := good.Check(); field != "" {
			t.Errorf("%+v: %s %s", good, field, must)
		}
	}
	for _, bad := range []struct {
		part  Part
		field string
	}{
		{Part{MIMEType: "image/png"}, "type"},
		{Part{Type: "video", MIMEType: "video/mp4"}, "type"},
		{Part{Type: PartImage}, "mime_type"},
		{Part{Type: PartImage, MIMEType: "image"}, "mime_type"},
		{Part{Type: PartImage, MIMEType: "image/"}, "mime_type"},
		{Part{Type: PartImage, MIMEType: "/png"}, "mime_type"},
		{Part{Type: PartImage, MIMEType: "image/PNG"}, "mime_type"},
		{Part{Type: PartImage, MIMEType: "image/png;q=1"}, "mime_type"},
		{Part{Type: PartImage, MIMEType: "image/png/x"}, "mime_type"},
		{Part{Type: PartImage, MIMEType: "image/png\r\nx: y"}, "mime_type"},
		{Part{Type: PartImage, MIMEType: "audio/ogg"}, "mime_type"},
		{Part{Type: PartFile, MIMEType: "a/" + strings.Repeat("b", maxMIMEType)}, "mime_type"},
		{Part{Type: PartFile, MIMEType: "a/b", Name: "a\u202egnp.exe"}, "name"},
		{Part{Type: PartFile, MIMEType: "a/b", Name: "a\nb"}, "name"},
		{Part{Type: PartFile, MIMEType: "a/b", Name: "\xff"}, "name"},
		{Part{Type: PartFile, MIMEType: "a/b", Name: strings.Repeat("x", maxPartName+1)}, "name"},
		{Part{Type: PartFile, MIMEType: "a/b", URI: "a:\nb"}, "uri"},
		{Part{Type: PartFile, MIMEType: "a/b", URI: "a:" + strings.Repeat("x", maxPartURI)}, "uri"},
		{Part{Type: PartFile, MIMEType: "a/b", Size: -1}, "size"},
	} {
		if field, _ := bad.part.Check(); field != bad.field {
			t.Errorf("%+v: refused for %q, want %q", bad.part, field, bad.field)
		}
	}
}

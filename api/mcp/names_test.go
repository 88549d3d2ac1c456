package mcp

import (
	"strings"
	"testing"

	"github.com/farhand/farhand/registry"
)

// A qualified name is taken apart into what it was made of, and two are never the same.
func TestQualifiedNames(t *testing.T) {
	tools := []string{"light", "a__b", "a_", "self.volume.set", "x-1"}
	sessions := []string{
		"kitchen", "b__c", "c", "_c"[1:], "android:1", "user@host", "a.b", "a.2eb", "x~+=", "a_b", "a__b", "a___b",
		"6f1c8a52-8c31-4d55-9a53-0c1f6f2d7f11",
	}
	seen := make(map[string]string)
	for _, tool := range tools {
		for _, session := range sessions {
			name := qualify(tool, session)
			if other := seen[name]; other != "" && other != tool+" "+session {
				t.Errorf("%s is %s, and %s %s", name, other, tool, session)
			}
			seen[name] = tool + " " + session
			gotTool, part, ok := unqualify(name)
			id, is := unescapeSession(part)
			if !ok || !is || gotTool != tool || id != session || len(name) > maxName {
				t.Errorf("%s: %s, %s", name, gotTool, id)
			}
		}
	}
	long := qualify(strings.Repeat("t", 64), strings.Repeat("s", 128))
	if _, part, ok := unqualify(long); !ok || len(long) > maxName || part != hashSession(strings.Repeat("s", 128)) {
		t.Error(long)
	}
	for _, part := range []string{"", ".", ".2", ".zz", ".h00", "a.61", "ü", "a..", ".2E"} {
		if id, ok := unescapeSession(part); ok {
			t.Errorf("%q is %q", part, id)
		}
	}
}

// Names that MCP does not allow become ones that it does, always the same, and different for different names.
func TestNamesBeyondASCII(t *testing.T) {
	shown := make(map[string]string)
	for _, name := range []string{"licht", "größe", "groesse", "свет", "灯", "灯2", "größe_2"} {
		got := displayName(name)
		changed := strings.ContainsFunc(name, func(r rune) bool { return r >= 0x80 })
		if displayName(got) != got || !registry.ValidToolName(got) || shown[got] != "" ||
			(got != name) != changed || changed != isHashed(got) {
			t.Errorf("%s is %s, as is %s", name, got, shown[got])
		}
		shown[got] = name
	}
}

// FuzzUnqualify: whatever a client calls, a name is that of at most one session, and a session's own.
func FuzzUnqualify(f *testing.F) {
	for _, seed := range []string{"light__kitchen", "a__b__c", "x__.3a", "__", "x__.h00", "a__b.2ec"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		tool, part, ok := unqualify(name)
		if !ok {
			return
		}
		if id, ok := unescapeSession(part); ok && len(name) <= maxName && qualify(tool, id) != name {
			t.Errorf("%q is %q of %q, which is called %q", name, tool, id, qualify(tool, id))
		}
	})
}

package registry

import (
	"strings"
	"testing"
)

func TestKeysAreRestricted(t *testing.T) {
	for session, want := range map[string]bool{
		"a": true, "phone-7.b_c": true, "android:1": true, "user@host": true, "user+tag@host.example": true,
		"YWJj==": true, "a~b": true,
		"a:b:c": true, ":a": false, "@a": false, "~a": false, "+a": false, "=a": false, "a%41": false, "a?b": false,
		"a#b": false,
		"a&b": false, "a\\b": false, "a}b": false, "..": false, "a,b": false, "a;b": false, "a<b": false,
		"a'b": false, "a\u200b": false, "5d1f": true, strings.Repeat("a", 128): true, "Z": true,
		"": false, "-a": false, ".a": false, "_a": false, "a b": false, "a{b}": false, "a*": false, "a\n": false,
		"ä": false, strings.Repeat("a", 129): false, "a/b": false, "a\x00": false,
	} {
		if got := (Key{Tenant: "t", Session: session}).Validate() == nil; got != want {
			t.Errorf("session %q: %v", session, got)
		}
	}
	for tenant, want := range map[string]bool{
		"default": true, "t-1_x": true, strings.Repeat("a", 64): true, "": false, "a.b": false, "-": false,
		strings.Repeat("a", 65): false,
	} {
		if got := (Key{Tenant: tenant, Session: "s"}).Validate() == nil; got != want {
			t.Errorf("tenant %q: %v", tenant, got)
		}
	}
}

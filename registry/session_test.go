package registry

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"
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

// Who had a session first is senior. Within a millisecond, the one whose device has come back is.
func TestSeniorTo(t *testing.T) {
	at := time.UnixMilli
	back := func(connected, since int64) Session { return Session{ConnectedAt: at(connected), Since: at(since)} }
	for name, tt := range map[string]struct {
		a, b   Session
		senior bool
	}{
		"first":               {Session{ConnectedAt: at(1)}, Session{ConnectedAt: at(2)}, true},
		"same time":           {Session{ConnectedAt: at(1)}, Session{ConnectedAt: at(1)}, false},
		"same millisecond":    {Session{ConnectedAt: at(1)}, Session{ConnectedAt: at(1).Add(time.Microsecond)}, false},
		"came back":           {back(9, 1), Session{ConnectedAt: at(2)}, true},
		"came back, as old":   {back(9, 2), Session{ConnectedAt: at(2)}, true},
		"both came back":      {back(9, 2), back(3, 2), false},
		"came back, was late": {back(9, 3), Session{ConnectedAt: at(2)}, false},
	} {
		if tt.a.SeniorTo(tt.b) != tt.senior || tt.senior && tt.b.SeniorTo(tt.a) {
			t.Errorf("%s: %v, the other way round %v", name, tt.a.SeniorTo(tt.b), tt.b.SeniorTo(tt.a))
		}
	}
}

// A target matches a session only if all of it does. An empty value of a label is a value.
func TestTargetMatches(t *testing.T) {
	s := Session{
		Key: Key{Tenant: "t", Session: "s"}, DeviceID: "d", UserID: "u",
		Labels: map[string]string{"room": "", "at": "home"},
	}
	for _, tt := range []struct {
		target Target
		want   bool
	}{
		{Target{}, true},
		{Target{SessionID: "s", DeviceID: "d", UserID: "u", Labels: s.Labels}, true},
		{Target{SessionID: "S"}, false},
		{Target{SessionID: "s", DeviceID: "e"}, false},
		{Target{DeviceID: "d", UserID: "v"}, false},
		{Target{Labels: map[string]string{"room": ""}}, true},
		{Target{Labels: map[string]string{"floor": ""}}, false},
		{Target{Labels: map[string]string{"at": "home", "room": "hall"}}, false},
	} {
		if tt.target.Matches(s) != tt.want {
			t.Errorf("%+v: %v", tt.target, !tt.want)
		}
	}
}

// Hooks decide on the attributes, so no two sets of them may look the same.
func TestAttributesDigest(t *testing.T) {
	seen := make(map[uint64]int)
	for i, s := range []Session{
		{}, {Name: "a"}, {DeviceID: "a"}, {UserID: "a"}, {Name: "a", DeviceID: "b"}, {Name: "ab"},
		{Capabilities: []string{"a"}}, {Capabilities: []string{"a", "b"}}, {Capabilities: []string{"ab"}},
		{Labels: map[string]string{"a": "b"}}, {Labels: map[string]string{"ab": ""}},
		{Labels: map[string]string{"a": ""}, Capabilities: []string{"b"}},
		{Capabilities: []string{"b", "", "a"}}, {Capabilities: []string{""}}, {Capabilities: []string{"", ""}},
	} {
		digest := s.AttributesDigest()
		if before, ok := seen[digest]; ok || digest == 0 || digest != s.Clone().AttributesDigest() {
			t.Errorf("%d: %x, seen of %d", i, digest, before)
		}
		seen[digest] = i
	}
}

// Pods of two releases compare digests, so the digest of a session must not change.
func TestAttributesDigestStaysTheSame(t *testing.T) {
	s := Session{
		Name: "n", DeviceID: "d", DeviceName: "dn", UserID: "u", Platform: "p", Capabilities: []string{"ack", "cancel"},
		Labels: map[string]string{"room": "kitchen", "at": "home"},
	}
	text := "n|d|dn|u|p|ack|cancel||at|home|room|kitchen|"
	sum := sha256.Sum256([]byte(strings.ReplaceAll(text, "|", "\xff")))
	if want := binary.BigEndian.Uint64(sum[:]) | 1; s.AttributesDigest() != want {
		t.Errorf("%x, want %x", s.AttributesDigest(), want)
	}
}

func TestAttributesAreRestricted(t *testing.T) {
	labels := func(n int) map[string]string {
		all := make(map[string]string)
		for i := range n {
			all[fmt.Sprintf("l%d", i)] = "v"
		}
		return all
	}
	for name, tt := range map[string]struct {
		s    Session
		want bool
	}{
		"nothing":           {Session{}, true},
		"longest":           {Session{UserID: strings.Repeat("u", maxAttributeLen)}, true},
		"too long":          {Session{UserID: strings.Repeat("u", maxAttributeLen+1)}, false},
		"emoji":             {Session{DeviceName: "Ann's 👩‍💻"}, true},
		"control character": {Session{Name: "a\x1b[31m"}, false},
		"line":              {Session{Platform: "a\nb"}, false},
		"no UTF-8":          {Session{DeviceID: "\xff"}, false},
		"turned around":     {Session{DeviceName: "a\u202eb"}, false},
		"most labels":       {Session{Labels: labels(MaxLabels)}, true},
		"too many labels":   {Session{Labels: labels(MaxLabels + 1)}, false},
		"name of a label":   {Session{Labels: map[string]string{"a b": "c"}}, false},
		"value of a label":  {Session{Labels: map[string]string{"a": "\u200b"}}, false},
		"capabilities":      {Session{Capabilities: make([]string, maxCapabilities)}, true},
		"too many":          {Session{Capabilities: make([]string, maxCapabilities+1)}, false},
	} {
		if err := tt.s.ValidateAttributes(); (err == nil) != tt.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

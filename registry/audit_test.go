package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
)

func TestDecideSaysWhoDecided(t *testing.T) {
	for _, c := range []struct {
		err     error
		outcome string
		code    Code
	}{
		{nil, AuditAllowed, ""},
		{Errorf(CodePolicyDenied, "not you"), AuditDenied, CodePolicyDenied},
		{Errorf(CodeForbidden, "not you"), AuditDenied, CodeForbidden},
		{Errorf(CodeApprovalDenied, "not now"), AuditDenied, CodeApprovalDenied},
		{Errorf(CodeRateLimited, "not so fast"), AuditDenied, CodeRateLimited},
		{Errorf(CodeInvalidArguments, "no such field"), AuditFailed, CodeInvalidArguments},
		{StoreUnavailable("look", nil), AuditFailed, CodeStoreUnavailable},
	} {
		e := AuditEntry{Rule: "as allowed"}
		e.Decide(c.err)
		if e.Outcome != c.outcome || e.Code != c.code || (e.Reason == "") != (c.err == nil) {
			t.Errorf("%v: %+v", c.err, e)
		}
	}
	refusal := Errorf(CodePolicyDenied, "no")
	refusal.Rule = "no-exec"
	e := AuditEntry{Rule: "as allowed"}
	if e.Decide(refusal); e.Rule != "no-exec" {
		t.Errorf("a refusal is put down to %q", e.Rule)
	}
}

// A line waits in memory until it is written, so it keeps neither long texts nor long arguments.
func TestLinesOfTheAuditLogAreShort(t *testing.T) {
	long := `{"a":"` + strings.Repeat("ä", promptDigest) + `"}`
	e := AuditEntry{
		Actor:  AuditActor{User: long, Credential: long, Source: long, Roles: make([]string, 99)},
		Reason: long, Action: long, Target: long, Tool: long, CallID: long, Args: MustJSON(long),
	}
	e.Trim()
	if n := e.MemorySize(); n > 2048 || len(e.Actor.Roles) > maxAuditRoles {
		t.Errorf("%d bytes, %d roles", n, len(e.Actor.Roles))
	}
	for _, text := range []string{
		e.Actor.User, e.Actor.Credential, e.Actor.Source, e.Action, e.Target, e.Tool, e.CallID,
	} {
		if len(text) > maxAuditName || !strings.HasPrefix(long, strings.TrimSuffix(text, "…")) {
			t.Errorf("%d bytes: %.20q", len(text), text)
		}
	}
	sum := sha256.Sum256([]byte(long))
	if e.ArgsDigest != hex.EncodeToString(sum[:]) || !e.Args.IsZero() {
		t.Errorf("digest %q", e.ArgsDigest)
	}

	short := AuditEntry{Args: MustJSON(`{"a":1}`)}
	if short.Trim(); short.ArgsDigest != "" || short.Args.IsZero() {
		t.Error("short arguments were digested on the path of the call")
	}
	record := NewRecord("c", "t", "tool", short.Args.Raw())
	record.DigestArgs()
	if short.DigestArgs(); short.ArgsDigest != record.ArgsDigest || short.ArgsDigest == "" {
		t.Errorf("the audit log says %q, the record %q", short.ArgsDigest, record.ArgsDigest)
	}
	none := AuditEntry{}
	if none.DigestArgs(); none.ArgsDigest != "" {
		t.Error("a line without arguments has a digest")
	}
}

func TestVocabularyOfTheAuditLog(t *testing.T) {
	for _, words := range [][]string{AuditActions(), AuditOutcomes()} {
		sorted := slices.Sorted(slices.Values(words))
		if len(slices.Compact(sorted)) != len(words) || slices.Contains(words, "") {
			t.Errorf("%q", words)
		}
	}
}

func FuzzParseAuditID(f *testing.F) {
	for _, seed := range []string{"1-1.0", "1795353640474-12.63", "0-0.999999", "1-1", "1-1.-1", "1-1.1\n", "x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := ParseAuditID(text)
		if err != nil {
			if AsError(err).Code != CodeInvalidRequest {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if again, err := ParseAuditID(id.String()); err != nil || again != id {
			t.Errorf("%q is %v, which is read as %v, %v", text, id, again, err)
		}
	})
}

// A query selects by every field that it names.
func TestAuditQueryMatches(t *testing.T) {
	line := AuditEntry{
		Actor: AuditActor{User: "ann", Credential: "key"}, Action: "call", Outcome: AuditAllowed,
		Tool: "t", SessionID: "s", CallID: "c",
	}
	for query, want := range map[AuditQuery]bool{
		{}:                                true,
		{User: "ann", Tool: "t"}:          true,
		{User: "bob"}:                     false,
		{Credential: "token"}:             false,
		{Action: "call", Outcome: "fail"}: false,
		{SessionID: "s", CallID: "other"}: false,
	} {
		if query.Matches(line) != want {
			t.Errorf("%+v: want %v", query, want)
		}
	}
}

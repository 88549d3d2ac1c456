package registry

import (
	"strings"
	"testing"
)

// question is one that a person was asked.
func question() Approval {
	return Approval{
		ID: "a", Tenant: "t", Tool: "wipe", DefinitionHash: "h", ArgsDigest: "d", SessionID: "s", DeviceID: "phone",
		Owner: "ann", Requester: Requester{User: "bob"}, Rules: "r1 r2",
	}
}

func TestGrantsCoverWhatWasAsked(t *testing.T) {
	for name, c := range map[string]struct {
		change      func(*Approval)
		tool, exact bool // whether a grant of each scope covers the changed question
	}{
		"the same":           {func(*Approval) {}, true, true},
		"another id":         {func(a *Approval) { a.ID = "b" }, true, true},
		"moved device":       {func(a *Approval) { a.SessionID = "s2" }, true, true},
		"other arguments":    {func(a *Approval) { a.ArgsDigest = "e" }, true, false},
		"other tool":         {func(a *Approval) { a.Tool = "wipe2" }, false, false},
		"redefined tool":     {func(a *Approval) { a.DefinitionHash = "i" }, false, false},
		"other device":       {func(a *Approval) { a.DeviceID = "tablet" }, false, false},
		"no device":          {func(a *Approval) { a.DeviceID = "" }, false, false},
		"other owner":        {func(a *Approval) { a.Owner = "eve" }, false, false},
		"other requester":    {func(a *Approval) { a.Requester.User = "eve" }, false, false},
		"a key of that name": {func(a *Approval) { a.Requester = Requester{Credential: "bob"} }, false, false},
		"a model asks":       {func(a *Approval) { a.Model = true }, false, false},
		"other rules":        {func(a *Approval) { a.Rules = "r1" }, false, false},
	} {
		asked := question()
		c.change(&asked)
		for scope, want := range map[ApprovalScope]bool{ScopeAlwaysTool: c.tool, ScopeAlwaysArgs: c.exact} {
			if got := GrantOf(question(), scope).Covers(asked); got != want {
				t.Errorf("%s: a grant of scope %s covers it: %v", name, scope, got)
			}
		}
	}
}

// The parts of a binding are told apart, wherever one ends and the next begins.
func TestBindingsDoNotRunTogether(t *testing.T) {
	one, other := Grant{Tool: "ab", DefinitionHash: "c"}, Grant{Tool: "a", DefinitionHash: "bc"}
	if one.Binding() == other.Binding() {
		t.Error("two grants have one binding")
	}
	device, session := Grant{DeviceID: "x"}, Grant{SessionID: "x"}
	if device.Binding() == session.Binding() {
		t.Error("a device and a session of one name have one binding")
	}
}

func TestApprovalIDs(t *testing.T) {
	id := NewApprovalID()
	if !ValidApprovalID(id) || id == NewApprovalID() {
		t.Errorf("%q", id)
	}
	for _, bad := range []string{"", id[1:], id + "a", strings.ToUpper(id[:15]) + "A", id[:15] + "1", id[:15] + "*"} {
		if ValidApprovalID(bad) {
			t.Errorf("%q may be an id", bad)
		}
	}
	if (Verdict{}).Final() || (Verdict{State: ApprovalPending}).Final() || !(Verdict{State: ApprovalAllowed}).Final() {
		t.Error("which verdicts are final")
	}
}

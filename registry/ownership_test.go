package registry

import (
	"strings"
	"testing"
)

func TestWhoMayClaimASession(t *testing.T) {
	ann := Session{UserID: "ann"}
	phone := Session{UserID: "ann", DeviceID: "phone", Bound: true}
	for name, c := range map[string]struct {
		had, claim Session
		want       bool
	}{
		"nobody's, by anybody":          {Session{}, ann, true},
		"ann's, by ann":                 {ann, ann, true},
		"ann's, by bob":                 {ann, Session{UserID: "bob"}, false},
		"ann's, by nobody":              {ann, Session{}, false},
		"ann's, by her bound phone":     {ann, phone, true},
		"the phone's, by the phone":     {phone, phone, true},
		"the phone's, by ann elsewhere": {phone, ann, false},
		"the phone's, by who says so":   {phone, Session{UserID: "ann", DeviceID: "phone"}, false},
		"the phone's, by her tablet":    {phone, Session{UserID: "ann", DeviceID: "tablet", Bound: true}, false},
		"the phone's, by any owner":     {phone, Session{AnyOwner: true}, true},
	} {
		if got := c.had.BelongsTo(&c.claim); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if heir := (Session{AnyOwner: true}).Inherit(&ann); heir.UserID != "ann" || heir.AnyOwner {
		t.Errorf("a claim of any owner took the session from its user: %+v", heir)
	}
	if heir := (Session{UserID: "bob", AnyOwner: true}).Inherit(&ann); heir.UserID != "bob" {
		t.Errorf("a claim of a user is stored as that of %q", heir.UserID)
	}
}

func TestProofsOfResumeTokens(t *testing.T) {
	of := Proof("key:1", "a")
	if of == Proof("key:2", "a") || of == Proof("", "a") || SameHolder(of, Proof("key:2", "a")) ||
		SameHolder(of, Proof("", "a")) || !SameHolder(of, Proof("key:1", "b")) || strings.ContainsAny(of, " \n") {
		t.Error("proofs do not tell holders apart")
	}
	if again := Proof("", "a"); Proof("", "a") != again || again == Proof("", "b") || len(again) > 32 {
		t.Error("proofs do not tell tokens apart")
	}
	mine := Session{Proofs: []string{Proof("", "new"), Proof("", "old")}}
	p := mine.OwnerProof()
	if p != Proof("", "new") || !MayAnswer(p, mine.Proofs) || MayAnswer(p, []string{Proof("", "x")}) {
		t.Error("the device may not answer its calls, or another one may")
	}
	if (&Session{}).OwnerProof() != "" || !MayAnswer("", nil) {
		t.Error("a call of a device without a token is for whoever has the session")
	}
}

package registry

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Who may have a session that somebody has already. A session belongs to the user and the device that the credentials
// of its first claim named. Where they named none, three things decide: the resume token, which only the device knows
// that was given it; the name a device gives itself; and whether the device that has the session still answers. The
// token, and the calls of a device that is gone, are for connections of the same credential only.
// docs/decisions/0014-who-may-have-a-session.md says why.

// HeirTerm is how long the device that had a session before may take it back from another one.
const HeirTerm = 5 * time.Minute

// AnyHolder is the generation that a claim names if it may replace any holder, because the holder has been asked.
const AnyHolder = -1

// Proof returns the hash by which a resume token is recognised that a connection of a holder was given
// (auth.Identity.Holder). Neither the token nor the holder can be made from it. A connection of another holder has
// another proof, even if it knows the token.
func Proof(holder, token string) string {
	sum := sha256.Sum256([]byte(token))
	proof := base64.RawURLEncoding.EncodeToString(sum[:16])
	if holder == "" {
		return proof
	}
	of := sha256.Sum256([]byte(holder))
	return base64.RawURLEncoding.EncodeToString(of[:9]) + proofSeparator + proof
}

// proofSeparator stands between the hash of a holder and that of a token.
const proofSeparator = "."

// SameHolder reports whether two proofs are of connections of one holder.
func SameHolder(a, b string) bool { return holderOf(a) == holderOf(b) }

// holderOf returns the part of a proof that stands for the holder.
func holderOf(proof string) string {
	of, _, found := strings.Cut(proof, proofSeparator)
	if !found {
		return ""
	}
	return of
}

// Introduction is what a device says about itself before it gets a session. Empty fields were not said.
type Introduction struct {
	DeviceID string
	Token    string // a resume token of an earlier connection; never logged
	Holder   string // of the connection's credential: not the device's word
}

// Proof returns the proof of the token that the device presents, empty if it presents none.
func (i *Introduction) Proof() string {
	if i.Token == "" {
		return ""
	}
	return Proof(i.Holder, i.Token)
}

// Held is the error of a claim that must not take a session before its holder has been asked. Nothing has changed.
type Held struct {
	Holder Session
	At     time.Time // by the store's clock
}

// Error implements error.
func (h *Held) Error() string {
	return fmt.Sprintf("session %s is held by another connection", h.Holder.Key.Session)
}

// AskFirst reports whether a claim must ask before it takes the session from a connection that has it: because another
// device must not get it, or because calls wait for its answers, and it matters whether it is really gone.
func (s *Session) AskFirst() bool {
	return s.DeviceID != "" || s.Can(CapabilityResumeToken) || s.Can(CapabilityResume)
}

// Succeed returns the heirs of a claim that replaces former, or comes after it: those former had, or former's own
// device if a claim had to ask it. Stores call it with their own time.
func Succeed(former Session, now time.Time) (heirs []string, until time.Time) {
	switch {
	case len(former.Heirs) > 0 && now.Before(former.HeirsUntil):
		return former.Heirs, former.HeirsUntil
	case former.AskFirst() && len(former.Proofs) > 0:
		return former.Proofs, now.Add(HeirTerm)
	default:
		return nil, time.Time{}
	}
}

// OwnerProof returns the proof of the device that owns the calls given to the connection from now on.
func (s *Session) OwnerProof() string {
	if len(s.Proofs) == 0 {
		return ""
	}
	return s.Proofs[0]
}

// MayAnswer reports whether a device with these proofs may answer a call that was given to the device with that proof.
func MayAnswer(proof string, proofs []string) bool {
	return proof == "" || slices.Contains(proofs, proof)
}

// BelongsTo reports whether a claim may have a session that was claimed so: one of a user is for that user, and one of
// a device that its credential names is for that device. A session of nobody in particular is for everybody.
func (s *Session) BelongsTo(claim *Session) bool {
	switch {
	case claim.AnyOwner:
		return true
	case s.UserID != "" && s.UserID != claim.UserID:
		return false
	default:
		return !s.Bound || claim.Bound && s.DeviceID == claim.DeviceID
	}
}

// Inherit returns the claim as it is stored: one of any owner leaves the session to its user.
func (s Session) Inherit(former *Session) Session {
	if s.AnyOwner && s.UserID == "" && former != nil {
		s.UserID = former.UserID
	}
	s.AnyOwner = false
	return s
}

// ErrForeignSession is returned for a claim of a session that belongs to another user or device.
var ErrForeignSession = Errorf(CodeSessionNotFound, "No session of yours has this id. Use another session_id.")

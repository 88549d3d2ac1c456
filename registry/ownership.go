package registry

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Rules for claiming a session that is already held. A session belongs to the user and the device in the credentials of
// its first claim. If these name none, three things decide: the resume token, which only its device knows; the name
// that a device gives itself; and whether the holding device still answers. The token, and the calls of a device that
// is gone, are only for connections of the same credential. docs/decisions/0014-who-may-have-a-session.md has the
// reasons.

// HeirTerm is how long the previous device may take a session back from another one.
const HeirTerm = 5 * time.Minute

// AnyHolder is a claim's generation if it may replace any holder, because the holder has been asked.
const AnyHolder = -1

// Proof returns the hash that identifies a resume token of a connection of holder (auth.Identity.Holder). It reveals
// neither the token nor the holder. A connection of another holder has another proof, even if it knows the token.
func Proof(holder, token string) string {
	sum := sha256.Sum256([]byte(token))
	proof := base64.RawURLEncoding.EncodeToString(sum[:16])
	if holder == "" {
		return proof
	}
	of := sha256.Sum256([]byte(holder))
	return base64.RawURLEncoding.EncodeToString(of[:9]) + proofSeparator + proof
}

// proofSeparator separates the hashes of a holder and a token.
const proofSeparator = "."

// SameHolder reports whether two proofs belong to connections of one holder.
func SameHolder(a, b string) bool { return holderOf(a) == holderOf(b) }

// holderOf returns the holder's part of a proof.
func holderOf(proof string) string {
	of, _, found := strings.Cut(proof, proofSeparator)
	if !found {
		return ""
	}
	return of
}

// Introduction is a device's data about itself before it gets a session. Empty fields are unset.
type Introduction struct {
	DeviceID string
	Token    string // a resume token of an earlier connection; never logged
	Holder   string // of the connection's credential: not under the device's control
}

// Proof returns the proof of the device's token, empty without a token.
func (i *Introduction) Proof() string {
	if i.Token == "" {
		return ""
	}
	return Proof(i.Holder, i.Token)
}

// Held is the error of a claim that must ask the session's holder first. Nothing has changed.
type Held struct {
	Holder Session
	At     time.Time // by the store's clock
}

// Error implements error.
func (h *Held) Error() string {
	return fmt.Sprintf("session %s is held by another connection", h.Holder.Key.Session)
}

// AskFirst reports whether a claim must ask before it takes the session from its connection. Reasons: another device
// must not get the session, or calls wait for its answers and it matters whether the device is really gone.
func (s *Session) AskFirst() bool {
	return s.DeviceID != "" || s.Can(CapabilityResumeToken) || s.Can(CapabilityResume)
}

// Succeed returns the heirs of a claim that replaces or follows former: former's heirs, or former's own device if a
// claim had to ask it. Stores call it with their own time.
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

// OwnerProof returns the proof of the device that owns calls given to the connection from now on.
func (s *Session) OwnerProof() string {
	if len(s.Proofs) == 0 {
		return ""
	}
	return s.Proofs[0]
}

// MayAnswer reports whether a device with these proofs may answer a call that was given to a device with that proof.
func MayAnswer(proof string, proofs []string) bool {
	return proof == "" || slices.Contains(proofs, proof)
}

// BelongsTo reports whether a claim may take the session. A user's session is for that user. A session bound to a
// device is for that device. A session without a user or a bound device is for every claim.
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

// Inherit returns the claim for storage. With AnyOwner and no user, the session keeps its former user.
func (s Session) Inherit(former *Session) Session {
	if s.AnyOwner && s.UserID == "" && former != nil {
		s.UserID = former.UserID
	}
	s.AnyOwner = false
	return s
}

// ErrForeignSession is returned for a claim of a session that belongs to another user or device.
var ErrForeignSession = Errorf(CodeSessionNotFound, "No session of yours has this id. Use another session_id.")

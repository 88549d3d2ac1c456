package registry

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"time"
)

// Who may have a session that somebody has already. Nobody's identity is bound to a session, so three things decide:
// the resume token, which only the device knows that was given it; the name a device gives itself; and whether the
// device that has the session still answers. docs/decisions/0014-who-may-have-a-session.md says why.

const (
	// proofLimit is how many proofs a session remembers. A device that reconnects more often during a call cannot
	// answer it.
	proofLimit = 4

	// HeirTerm is how long the device that had a session before may take it back from another one.
	HeirTerm = 5 * time.Minute
)

// AnyHolder as the generation of a session to be claimed says that its holder was asked already, whichever it is.
const AnyHolder = -1

// Proof returns the hash by which a resume token is recognised. The token cannot be made from it.
func Proof(token string) string {
	sum := sha256.Sum256([]byte(token))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// Introduction is what a device says about itself before it gets a session. Empty fields were not said.
type Introduction struct {
	DeviceID string
	Token    string // a resume token of an earlier connection; never logged
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

// Verdict is what becomes of a claim of a session that a connection holds.
type Verdict int

// The verdicts.
const (
	VerdictWait   Verdict = iota // more must be known first
	VerdictTake                  // the session is the claimer's
	VerdictRefuse                // the holder keeps it
)

// Decide says what becomes of the claim. said is nil until the claimer has introduced itself, answers is nil until it
// is known whether the holder answers.
func (h *Held) Decide(said *Introduction, answers *bool) Verdict {
	holder := &h.Holder
	switch {
	case said != nil && h.proven(said.Token):
		return VerdictTake
	case answers == nil:
		return VerdictWait
	case !*answers:
		return VerdictTake
	case holder.Can(CapabilityResumeToken): // a device that keeps its token would have presented it
	case holder.DeviceID == "":
		return VerdictTake
	case said != nil && said.DeviceID == holder.DeviceID:
		return VerdictTake
	}
	if said == nil {
		return VerdictWait
	}
	return VerdictRefuse
}

// proven reports whether the token is one of the holder's, or of the device that may take the session back from it.
func (h *Held) proven(token string) bool {
	if token == "" {
		return false
	}
	proof := Proof(token)
	return slices.Contains(h.Holder.Proofs, proof) ||
		slices.Contains(h.Holder.Heirs, proof) && h.At.Before(h.Holder.HeirsUntil)
}

// AskFirst reports whether a claim must ask before it takes the session from a connection that has it: because another
// device must not get it, or because calls wait for its answers, and it matters whether it is really gone.
func (s *Session) AskFirst() bool {
	return s.DeviceID != "" || s.Can(CapabilityResumeToken) || s.Can(CapabilityResume)
}

// Inherit returns the session with what its device has proven: whose calls it may answer, and who may take it back.
// former is the claim before this one, nil if none is remembered; gone reports that its device was really gone.
func (s Session) Inherit(said Introduction, former *Session, gone bool) Session {
	var proofs []string
	if said.Token != "" {
		proofs = append(proofs, Proof(said.Token))
	}
	proofs = append(proofs, s.Proofs...)
	if former != nil {
		same := said.Token != "" && slices.Contains(former.Proofs, Proof(said.Token))
		alike := said.Token == "" && gone && !former.Can(CapabilityResumeToken) && former.DeviceID == said.DeviceID
		if same || alike {
			proofs = append(proofs, former.Proofs...)
			s.Since = former.Seniority()
		}
	}
	s.Proofs = distinct(proofs)
	if slices.ContainsFunc(s.Proofs, func(p string) bool { return slices.Contains(s.Heirs, p) }) {
		s.Heirs, s.HeirsUntil = nil, time.Time{}
	}
	return s
}

// distinct returns the first proofs of a list, each once.
func distinct(proofs []string) []string {
	var kept []string
	for _, p := range proofs {
		if len(kept) < proofLimit && !slices.Contains(kept, p) {
			kept = append(kept, p)
		}
	}
	return kept
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

// MayAnswer reports whether a device with these proofs may answer a call that was given to the device with the proof
// owner.
func MayAnswer(owner string, proofs []string) bool {
	return owner == "" || slices.Contains(proofs, owner)
}

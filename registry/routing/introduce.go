package routing

import (
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
)

// proofLimit is how many proofs a session remembers. A device that reconnects more often during a call cannot answer
// it.
const proofLimit = 4

// Introduce takes the device's introduction, which decides which calls it may answer. The calls of its former
// connection are in flight here from now on. Introduce is called once. It reports whether the caller must store the
// change with Update.
func (l *LocalSession) Introduce(said registry.Introduction) (changed bool) {
	l.mu.Lock()
	before := l.before
	l.before = nil
	s := inherit(l.session, said, before, l.gone)
	if before != nil && before.DeviceID == said.DeviceID && !s.Since.IsZero() {
		l.named = said.DeviceID
	}
	changed = len(s.Proofs) != len(l.session.Proofs) || len(s.Heirs) != len(l.session.Heirs) ||
		s.OwnerProof() != l.session.OwnerProof()
	l.session.Proofs, l.session.Since = s.Proofs, s.Since
	l.session.Heirs, l.session.HeirsUntil = s.Heirs, s.HeirsUntil
	l.mu.Unlock()
	if l.hub.Get(l.key) == l { // a connection that has lost the session takes over no calls
		l.rejoin(l.hub.detached.takeAll(l.key, s.Proofs))
	}
	return changed
}

// inherit returns s with what its device has proven: whose calls it may answer, and who may take it back. former is the
// claim before this one, nil if none is remembered; gone reports that its device was really gone.
func inherit(
	s registry.Session, said registry.Introduction, former *registry.Session, gone bool,
) registry.Session {
	var proofs []string
	presented := said.Proof()
	if presented != "" {
		proofs = append(proofs, presented)
	}
	proofs = append(proofs, s.Proofs...)
	if former != nil {
		same := presented != "" && slices.Contains(former.Proofs, presented)
		alike := presented == "" && gone && !former.Can(registry.CapabilityResumeToken) &&
			former.DeviceID == said.DeviceID && registry.SameHolder(former.OwnerProof(), s.OwnerProof())
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

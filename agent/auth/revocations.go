package auth

import (
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// subject is what a change is about.
type subject struct {
	tenant string
	kind   registry.ChangeKind
	id     string
}

// mark is what the log of changes says of a subject.
type mark struct {
	at         time.Time // of the last revocation, or of the last change if there was none
	revoked    bool
	generation int64 // of the revocations when the last change was noted
}

// revocations is what the log of changes says, as far as it goes back. It is safe for concurrent use.
type revocations struct {
	mu         sync.RWMutex
	marks      map[subject]mark
	generation int64 // grows with every change
	floor      int64 // what was read from the store before this generation may have missed a change
}

func newRevocations() *revocations { return &revocations{marks: make(map[subject]mark)} }

// note notes a change. It reports false for a kind that this release does not know.
func (r *revocations) note(c registry.CredentialChange) bool {
	switch c.Kind {
	case registry.ChangeCredential, registry.ChangeUser, registry.ChangeDevice, registry.ChangeJWT:
	default:
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.generation++
	s := subject{c.Tenant, c.Kind, c.ID}
	m := r.marks[s]
	if c.Revoked || !m.revoked {
		m.at, m.revoked = c.At, c.Revoked
	}
	m.generation = r.generation
	r.marks[s] = m
	return true
}

// distrust has everything that was read from the store so far read again.
func (r *revocations) distrust() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.generation++
	r.floor = r.generation
}

// forget forgets changes that were made before then.
func (r *revocations) forget(then time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s, m := range r.marks {
		if m.at.Before(then) {
			delete(r.marks, s)
		}
	}
}

// now returns the generation, for current.
func (r *revocations) now() int64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.generation
}

// current reports whether a credential has not changed since a generation.
func (r *revocations) current(tenant, id string, since int64) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return since >= r.floor && since >= r.marks[subject{tenant, registry.ChangeCredential, id}].generation
}

// revoked reports whether the identity was revoked.
func (r *revocations) revoked(id *Identity) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if len(r.marks) == 0 {
		return false
	}
	if s, ok := credentialSubject(id); ok && r.marks[s].revoked {
		return true
	}
	return id.User != "" && r.beforeLocked(id, subject{id.Tenant, registry.ChangeUser, id.User}) ||
		id.Device != "" && r.beforeLocked(id, subject{id.Tenant, registry.ChangeDevice, id.Device})
}

// beforeLocked reports whether the identity was issued before a subject was revoked.
func (r *revocations) beforeLocked(id *Identity, s subject) bool {
	m := r.marks[s]
	return m.revoked && issuedBefore(id, m.at)
}

// issuedBefore reports whether a revocation of somebody, at a time, meant this identity of theirs, too. If nobody knows
// when a program's own authenticator has issued it, that program says whether it holds.
func issuedBefore(id *Identity, at time.Time) bool {
	if id.Issued.IsZero() {
		_, ours := credentialSubject(id)
		return ours
	}
	return !id.Issued.After(at)
}

// credentialSubject returns what a revocation of the credential of an identity is about. It reports false for one that
// cannot be revoked.
func credentialSubject(id *Identity) (subject, bool) {
	kind, rest, ok := strings.Cut(id.Credential, ":")
	switch {
	case !ok || rest == "":
	case kind == string(registry.CredentialKey), kind == string(registry.CredentialDevice):
		return subject{id.Tenant, registry.ChangeCredential, rest}, true
	case kind == credentialJWT:
		return subject{id.Tenant, registry.ChangeJWT, rest}, true
	}
	return subject{}, false
}

// credentialJWT is the kind of a JWT in Identity.Credential.
const credentialJWT = "jwt"

package auth

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/registry"
)

// changeAge is how long a change of a credential is kept in mind: longer than Keys remembers credentials, and than
// anybody takes from the check of an identity to holding it. Later the credential is not in the store any more.
const changeAge = 2 * keyAge

// subject is what a change in a tenant is about.
type subject struct {
	kind registry.ChangeKind
	id   string
}

// mark is what is known of a subject.
type mark struct {
	at         time.Time // of the last revocation, or of the last change if there was none, by the store's clock
	noted      time.Time // by this pod's
	revoked    bool
	generation int64 // of the changes when the last one was noted
}

// tenantMarks is what is known of a tenant. Each change of a credential in it stays for changeAge, and everything else
// is what the store remembers: so no tenant has more than its share.
type tenantMarks struct {
	marks  map[subject]mark
	loaded bool         // what the store remembers is among them
	used   atomic.Int64 // when that was asked last, in Unix seconds
}

// revocations is what was revoked, as far as it was read: from the log, and from what the store remembers of each
// tenant. It is safe for concurrent use.
type revocations struct {
	mu         sync.RWMutex
	tenants    map[string]*tenantMarks
	generation int64 // grows with every change
	floor      int64 // what was read from the store before this generation may have missed a change
}

func newRevocations() *revocations { return &revocations{tenants: make(map[string]*tenantMarks)} }

// note notes a change. It reports false for a kind that this release does not know.
func (r *revocations) note(c registry.CredentialChange) bool {
	switch c.Kind {
	case registry.ChangeCredential, registry.ChangeUser, registry.ChangeDevice, registry.ChangeJWT:
	default:
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noteLocked(c, time.Now())
	return true
}

func (r *revocations) noteLocked(c registry.CredentialChange, now time.Time) {
	r.generation++
	of, s := r.tenantLocked(c.Tenant, now), subject{c.Kind, c.ID}
	m := of.marks[s]
	if c.Revoked && (!m.revoked || c.At.After(m.at)) || !m.revoked {
		m.at, m.revoked = c.At, c.Revoked
	}
	m.noted, m.generation = now, r.generation
	of.marks[s] = m
}

// tenantLocked returns what is known of a tenant, and begins to know it.
func (r *revocations) tenantLocked(tenant string, now time.Time) *tenantMarks {
	of := r.tenants[tenant]
	if of == nil {
		of = &tenantMarks{marks: make(map[subject]mark)}
		of.used.Store(now.Unix())
		r.tenants[tenant] = of
	}
	return of
}

// load notes what the store remembers of a tenant, as it was read at a generation.
func (r *revocations) load(tenant string, remembered []registry.CredentialChange, since int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, c := range remembered {
		r.noteLocked(c, now)
	}
	of := r.tenantLocked(tenant, now)
	of.loaded = of.loaded || since >= r.floor
}

// distrust has everything that was read from the store so far read again.
func (r *revocations) distrust() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.generation++
	r.floor = r.generation
	for _, of := range r.tenants {
		of.loaded = false
	}
}

// forget forgets changes of credentials after changeAge, revocations that were made before then, and tenants of which
// there is nothing and nobody has asked for an hour.
func (r *revocations) forget(now, then time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, of := range r.tenants {
		for s, m := range of.marks {
			if s.kind == registry.ChangeCredential && now.Sub(m.noted) > changeAge || m.at.Before(then) {
				delete(of.marks, s)
			}
		}
		if len(of.marks) == 0 && now.Unix()-of.used.Load() > int64(time.Hour/time.Second) {
			delete(r.tenants, name)
		}
	}
}

// now returns the generation, for current and load.
func (r *revocations) now() int64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.generation
}

// current reports whether a credential has not changed since a generation.
func (r *revocations) current(tenant, id string, since int64) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if since < r.floor {
		return false
	}
	of := r.tenants[tenant]
	return of == nil || since >= of.marks[subject{registry.ChangeCredential, id}].generation
}

// revoked reports whether the identity was revoked, and whether what the store remembers of its tenant is known, on
// which that may depend.
func (r *revocations) revoked(id *Identity) (revoked, known bool) {
	credential, revocable := credentialSubject(id)
	remembered := credential.kind == registry.ChangeJWT || id.User != "" || id.Device != ""
	if !revocable && !remembered {
		return false, true
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	of := r.tenants[id.Tenant]
	if of == nil {
		return false, !remembered
	}
	known = of.loaded || !remembered
	if now := time.Now().Unix(); of.used.Load() != now {
		of.used.Store(now)
	}
	if len(of.marks) == 0 {
		return false, known
	}
	return revocable && of.marks[credential].revoked ||
		id.User != "" && of.before(id, subject{registry.ChangeUser, id.User}) ||
		id.Device != "" && of.before(id, subject{registry.ChangeDevice, id.Device}), known
}

// before reports whether the identity was issued before a subject was revoked.
func (t *tenantMarks) before(id *Identity, s subject) bool {
	m := t.marks[s]
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
		return subject{registry.ChangeCredential, rest}, true
	case kind == CredentialJWT:
		return subject{registry.ChangeJWT, rest}, true
	}
	return subject{}, false
}

// CredentialJWT begins Identity.Credential of whoever has a JWT: a colon and its jti follow.
const CredentialJWT = "jwt"

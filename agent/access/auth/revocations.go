package auth

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/registry"
)

// changeAge is how long a change of a credential is kept. It must exceed the cache time in Keys, and the time between
// the check of an identity and holding it. After it, a revoked credential is in neither the cache nor the store.
const changeAge = 2 * keyAge

type subject struct {
	kind registry.ChangeKind
	id   string
}

// mark is the known state of a subject.
type mark struct {
	at         time.Time // of the last revocation, or of the last change if there was none, by the store's clock
	noted      time.Time // by this pod's clock
	revoked    bool
	generation int64 // of the changes when the last one was recorded
}

// tenantMarks is the known state of a tenant. Changes of credentials are kept for changeAge. All other changes are as
// many as the store remembers for the tenant, so its memory is bounded.
type tenantMarks struct {
	marks  map[subject]mark
	loaded bool         // marks include the store's revocations
	used   atomic.Int64 // when it was last read, in Unix seconds
}

// revocations has the known revocations, of the log and stored ones of tenants. It is safe for concurrent use.
type revocations struct {
	mu         sync.RWMutex
	tenants    map[string]*tenantMarks
	generation int64 // increases with every change
	floor      int64 // reads from the store before this generation may have missed a change
}

func newRevocations() *revocations { return &revocations{tenants: make(map[string]*tenantMarks)} }

// note records a change. It returns false for a kind that this release does not know.
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

// tenantLocked returns the state of a tenant. It creates it if it is missing.
func (r *revocations) tenantLocked(tenant string, now time.Time) *tenantMarks {
	of := r.tenants[tenant]
	if of == nil {
		of = &tenantMarks{marks: make(map[subject]mark)}
		of.used.Store(now.Unix())
		r.tenants[tenant] = of
	}
	return of
}

// addStored records a tenant's stored revocations. since is the generation at which they were read.
func (r *revocations) addStored(tenant string, remembered []registry.CredentialChange, since int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, c := range remembered {
		r.noteLocked(c, now)
	}
	of := r.tenantLocked(tenant, now)
	of.loaded = of.loaded || since >= r.floor
}

// distrust invalidates everything that was read from the store so far.
func (r *revocations) distrust() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.generation++
	r.floor = r.generation
	for _, of := range r.tenants {
		of.loaded = false
	}
}

// forget drops changes of credentials older than changeAge, and revocations before then. It also drops tenants that
// have no marks left and were not read for an hour.
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

// now returns the generation, for current and addStored.
func (r *revocations) now() int64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.generation
}

// current reports whether a credential is unchanged since a generation.
func (r *revocations) current(tenant, id string, since int64) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if since < r.floor {
		return false
	}
	of := r.tenants[tenant]
	return of == nil || since >= of.marks[subject{registry.ChangeCredential, id}].generation
}

// changed reports whether the identity's stored credential has changed recently.
func (r *revocations) changed(id *Identity) bool {
	credential, ok := credentialSubject(id)
	if !ok || credential.kind != registry.ChangeCredential {
		return false
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	of := r.tenants[id.Tenant]
	if of == nil {
		return false
	}
	_, changed := of.marks[credential]
	return changed
}

// revoked reports whether the identity was revoked. known is false if that also depends on the tenant's stored
// revocations, and they are not loaded.
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

// before reports whether the identity was issued before the subject was revoked. If its issue time is unknown, that
// counts only if Farhand can revoke its credential. Otherwise it comes from the embedding program's authenticator,
// which decides itself.
func (t *tenantMarks) before(id *Identity, s subject) bool {
	m := t.marks[s]
	if id.Issued.IsZero() {
		_, ours := credentialSubject(id)
		return m.revoked && ours
	}
	return m.revoked && !id.Issued.After(m.at)
}

// credentialSubject returns the subject of a revocation of the identity's credential, false if there can be none.
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

// CredentialJWT is the prefix of Identity.Credential for JWTs. A colon and the jti follow.
const CredentialJWT = "jwt"

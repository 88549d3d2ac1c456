package auth

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/registry"
)

// marked counts what is kept in mind of a tenant; -1: nothing is known of it at all.
func (r *revocations) marked(tenant string) int {
	if of := r.tenants[tenant]; of != nil {
		return len(of.marks)
	}
	return -1
}

// However many keys a tenant makes and revokes, a pod keeps those of two minutes in mind; and of users as many as the
// store does, for as long.
func TestWhatAPodKeepsInMind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, began := newRevocations(), time.Now()
		for i := range 1000 {
			r.note(registry.CredentialChange{
				Tenant: "acme", Kind: registry.ChangeCredential, ID: fmt.Sprint(i), Revoked: true, At: began,
			})
		}
		r.note(registry.CredentialChange{
			Tenant: "acme", Kind: registry.ChangeUser, ID: "ann", Revoked: true, At: began,
		})
		ann := &Identity{Tenant: "acme", User: "ann", Issued: began}
		for _, step := range []struct {
			after time.Duration
			marks int
		}{{keyAge, 1001}, {changeAge + time.Second, 1}, {time.Hour, 1}, {25 * time.Hour, -1}} {
			time.Sleep(step.after - time.Since(began))
			r.forget(time.Now(), time.Now().Add(-24*time.Hour))
			if n := r.marked("acme"); n != step.marks {
				t.Errorf("after %v: %d marks, want %d", step.after, n, step.marks)
			}
			if revoked, _ := r.revoked(ann); revoked != (step.marks > 0) && step.marks != -1 {
				t.Errorf("after %v: revoked: %v", step.after, revoked)
			}
		}
	})
}

// What is read late does not undo what was read of the log meanwhile, and counts as known only if nothing was missed.
func TestLoadingMeetsTheLog(t *testing.T) {
	r, now := newRevocations(), time.Now()
	ann := &Identity{Tenant: "acme", User: "ann", Issued: now.Add(time.Minute)}
	revoke := func(at time.Time) registry.CredentialChange {
		return registry.CredentialChange{Tenant: "acme", Kind: registry.ChangeUser, ID: "ann", Revoked: true, At: at}
	}
	since := r.now()
	r.note(revoke(now.Add(time.Hour)))
	r.addStored("acme", []registry.CredentialChange{revoke(now)}, since)
	if revoked, known := r.revoked(ann); !revoked || !known {
		t.Errorf("revoked %v, known %v", revoked, known)
	}
	since = r.now()
	r.distrust()
	r.addStored("acme", nil, since)
	if _, known := r.revoked(ann); known {
		t.Error("what was read before something was missed is taken to be all")
	}
	r.addStored("acme", nil, r.now())
	if _, known := r.revoked(ann); !known {
		t.Error("what was read afterwards is not taken to be all")
	}
}

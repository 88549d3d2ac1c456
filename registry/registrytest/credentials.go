package registrytest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

var credentialTests = []subtest{
	{name: "what is stored of a credential comes back", run: func(f *fixture) {
		c := f.credential("k1", func(c *registry.Credential) {
			c.Roles, c.User, c.DeviceID = []string{"device", "caller"}, "ann", "d:{1} *"
			c.Name = "Ann's \"phone\" <\u20ac>"
			c.Tools, c.Context, c.CreatedBy = "camera_* contacts", "group", "token"
			c.Person = true
			c.PublicKey = []byte{0, 1, 0xff}
			c.Approved = []registry.ApprovedTool{{Name: "camera", Hash: "h1"}, {Name: "torch", Hash: "h2"}}
			c.Kind, c.ExpiresAt = registry.CredentialDevice, time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
		})
		made := f.issue(c)
		if made.CreatedAt.IsZero() || time.Since(made.CreatedAt).Abs() > time.Minute {
			f.Errorf("made at %v", made.CreatedAt)
		}
		c.CreatedAt = made.CreatedAt
		f.wantCredential(made, c)
		byDigest, err := f.store.CredentialByDigest(f.ctx, c.Digest)
		f.must(err)
		f.wantCredential(byDigest, c)
		byID, err := f.store.Credential(f.ctx, f.tenant, "k1")
		f.must(err)
		f.wantCredential(byID, c)
		byID.Roles[0], byID.PublicKey[0] = "admin", 7 // the store must not share memory with callers
		again, err := f.store.Credential(f.ctx, f.tenant, "k1")
		f.must(err)
		f.wantCredential(again, c)
	}},
	{name: "what is not there is not found", run: func(f *fixture) {
		f.issue(f.credential("k1"))
		f.wantCode(errOf(f.store.CredentialByDigest(f.ctx, f.digest("k2"))), registry.CodeNotFound)
		for _, id := range []string{"k", "k11", "K1", "k1 "} {
			f.wantCode(errOf(f.store.Credential(f.ctx, f.tenant, id)), registry.CodeNotFound)
		}
		other := f.tenant + "x"
		f.wantCode(errOf(f.store.Credential(f.ctx, other, "k1")), registry.CodeNotFound)
		f.wantCode(errOf(f.store.RevokeCredential(f.ctx, other, "k1")), registry.CodeNotFound)
		f.wantCode(errOf(f.store.UpdateCredential(f.ctx, other, "k1",
			func(*registry.Credential) error { return nil })), registry.CodeNotFound)
	}},
	{name: "malformed credentials are refused", run: func(f *fixture) {
		for name, change := range map[string]func(*registry.Credential){
			"id":     func(c *registry.Credential) { c.ID = "a b" },
			"digest": func(c *registry.Credential) { c.Digest = "abc" },
			"case":   func(c *registry.Credential) { c.Digest = strings.Repeat("AB", 32) },
			"kind":   func(c *registry.Credential) { c.Kind = "" },
			"tenant": func(c *registry.Credential) { c.Tenant = "a}:{b" },
			"name":   func(c *registry.Credential) { c.Name = strings.Repeat("x", 257) },
			"tools":  func(c *registry.Credential) { c.Tools = "\xff" },
			"end":    func(c *registry.Credential) { c.ExpiresAt = time.Now().Add(-time.Minute) },
			"tools approved": func(c *registry.Credential) {
				c.Approved = make([]registry.ApprovedTool, 513)
			},
		} {
			_, err := f.store.CreateCredential(f.ctx, f.credential("k1", change))
			if !errors.Is(err, registry.CodeInvalidRequest) {
				f.Errorf("%s: %v", name, err)
			}
		}
		f.issue(f.credential("k1"))
		f.wantCode(errOf(f.store.CreateCredential(f.ctx, f.credential("k2", func(c *registry.Credential) {
			c.Digest = f.digest("k1")
		}))), registry.CodeInvalidRequest)
	}},
	{name: "credentials are listed in order, by kind, user and device", run: func(f *fixture) {
		for i := range 7 {
			f.issue(f.credential(fmt.Sprintf("k%d", i), func(c *registry.Credential) {
				c.User = []string{"ann", "ben"}[i%2]
				if i >= 3 {
					c.DeviceID = []string{"a b", "a", "a-b"}[i%3]
				}
				if i > 3 {
					c.Kind = registry.CredentialDevice
				}
			}))
		}
		f.issue(f.credential("k", func(c *registry.Credential) { c.User = "ann" })) // a prefix of other ids
		f.wantCredentials(registry.CredentialQuery{}, "k k0 k1 k2 k3 k4 k5 k6")
		f.wantCredentials(registry.CredentialQuery{Kind: registry.CredentialKey}, "k k0 k1 k2 k3")
		f.wantCredentials(registry.CredentialQuery{User: "ann"}, "k k0 k2 k4 k6")
		f.wantCredentials(registry.CredentialQuery{DeviceID: "a b"}, "k3 k6")
		f.wantCredentials(registry.CredentialQuery{DeviceID: "a", User: "ann"}, "k4")
		f.wantCredentials(registry.CredentialQuery{DeviceID: "a-b", After: "k4"}, "k5")
		f.wantCredentials(registry.CredentialQuery{After: "k1"}, "k2 k3 k4 k5 k6")
		f.must(errOf(f.store.RevokeCredential(f.ctx, f.tenant, "k6")))
		f.wantCredentials(registry.CredentialQuery{DeviceID: "a b"}, "k3")
		f.wantCredentials(registry.CredentialQuery{}, "k k0 k1 k2 k3 k4 k5")
	}},
	{name: "a tenant has so many, and what has ended makes room", limits: registry.Limits{
		SessionTTL: time.Minute, PodLease: time.Minute, Credentials: 3,
	}, run: func(f *fixture) {
		f.issue(f.credential("k1"))
		f.issue(f.credential("k2"))
		f.issue(f.credential("k3", func(c *registry.Credential) { c.ExpiresAt = time.Now().Add(briefly) }))
		full := f.credential("k4")
		// On a slow machine k3 may already have expired.
		if _, err := f.store.CreateCredential(f.ctx, full); err != nil {
			f.wantCode(err, registry.CodeInvalidRequest)
			f.wantCode(errOf(f.store.CredentialByDigest(f.ctx, full.Digest)), registry.CodeNotFound)
		}
		f.eventually("there is room when one has ended", func() bool {
			_, err := f.store.CreateCredential(f.ctx, full)
			return err == nil || errors.Is(err, registry.ErrCredentialExists)
		})
		_, err := f.store.CreateCredential(f.ctx, f.credential("k5"))
		f.wantCode(err, registry.CodeInvalidRequest)
		if !strings.Contains(err.Error(), "3") {
			f.Errorf("the number is not told: %v", err)
		}
		f.must(errOf(f.store.RevokeCredential(f.ctx, f.tenant, "k1")))
		f.issue(f.credential("k5"))
	}},
	{name: "a credential that has expired is gone", run: func(f *fixture) {
		c := f.issue(f.credential("k1", func(c *registry.Credential) {
			c.ExpiresAt, c.DeviceID = time.Now().Add(briefly), "d"
		}))
		f.eventually("it is gone", func() bool {
			_, err := f.store.CredentialByDigest(f.ctx, c.Digest)
			return errors.Is(err, registry.CodeNotFound)
		})
		f.wantCode(errOf(f.store.Credential(f.ctx, f.tenant, "k1")), registry.CodeNotFound)
		f.must(f.store.TouchCredentials(f.ctx, c.Digest)) // must not bring it back
		f.wantCredentials(registry.CredentialQuery{}, "")
		f.wantCredentials(registry.CredentialQuery{DeviceID: "d"}, "")
	}},
	{name: "an update changes what may change, one after the other", run: func(f *fixture) {
		c := f.issue(f.credential("k1", func(c *registry.Credential) { c.User = "ann" }))
		start := f.lastChange()
		together(8, func(i int) {
			_, err := f.store.UpdateCredential(f.ctx, f.tenant, "k1", func(c *registry.Credential) error {
				c.Approved = append(c.Approved, registry.ApprovedTool{Name: fmt.Sprint("tool", i), Hash: "h"})
				c.Name, c.User, c.ID, c.Digest, c.Kind = "new", "eve", "k9", "", ""
				return nil
			})
			if err != nil {
				f.Error(err)
			}
		})
		got, err := f.store.CredentialByDigest(f.ctx, c.Digest)
		f.must(err)
		if len(got.Approved) != 8 || got.Name != "new" || got.User != "ann" || got.ID != "k1" {
			f.Errorf("updated to %+v", got)
		}
		seen := f.changesAfter(start)
		if len(seen) != 8 || seen[0].Kind != registry.ChangeCredential || seen[0].ID != "k1" || seen[0].Revoked {
			f.Errorf("the log has %+v", seen)
		}
		own := errors.New("no")
		if _, err := f.store.UpdateCredential(f.ctx, f.tenant, "k1",
			func(*registry.Credential) error { return own }); !errors.Is(err, own) {
			f.Errorf("the error of a change is lost: %v", err)
		}
		_, err = f.store.UpdateCredential(f.ctx, f.tenant, "k1", func(c *registry.Credential) error {
			c.ExpiresAt = time.Now().Add(-time.Minute)
			return nil
		})
		f.wantCode(err, registry.CodeInvalidRequest)
		if after := f.changesAfter(start); len(after) != 8 {
			f.Errorf("what was not done is in the log: %+v", after[8:])
		}
	}},
	{name: "an update keeps a use that is noted meanwhile", run: func(f *fixture) {
		c := f.issue(f.credential("k1"))
		updated, err := f.store.UpdateCredential(f.ctx, f.tenant, "k1", func(c *registry.Credential) error {
			c.Name = "new"
			return f.store.TouchCredentials(f.ctx, c.Digest)
		})
		f.must(err)
		got, err := f.store.CredentialByDigest(f.ctx, c.Digest)
		f.must(err)
		if updated.Name != "new" || got.Name != "new" || got.LastUsed.IsZero() {
			f.Errorf("updated to %+v, stored as %+v", updated, got)
		}
	}},
	{name: "an update that others always come before ends", run: func(f *fixture) {
		f.issue(f.credential("k1"))
		tries := 0
		_, err := f.store.UpdateCredential(f.ctx, f.tenant, "k1", func(*registry.Credential) error {
			if tries++; tries > 2*documents.MaxTries {
				return errors.New("it has no end")
			}
			return errOf(f.store.UpdateCredential(f.ctx, f.tenant, "k1", func(c *registry.Credential) error {
				c.Name = fmt.Sprint("other ", tries)
				return nil
			}))
		})
		f.wantCode(err, registry.CodeBusy)
	}},
	{name: "a revoked credential is gone, once, and in the log", run: func(f *fixture) {
		c := f.issue(f.credential("k1", func(c *registry.Credential) { c.Name = "n" }))
		start := f.lastChange()
		var revoked atomic.Int64
		together(4, func(int) {
			got, err := f.store.RevokeCredential(f.ctx, f.tenant, "k1")
			switch {
			case err == nil:
				revoked.Add(1)
				if got.ID != "k1" {
					f.Errorf("revoked %+v", got)
				}
			case !errors.Is(err, registry.CodeNotFound):
				f.Error(err)
			}
		})
		if revoked.Load() == 0 {
			f.Error("nobody has revoked it")
		}
		f.wantCode(errOf(f.store.CredentialByDigest(f.ctx, c.Digest)), registry.CodeNotFound)
		f.wantCode(errOf(f.store.Credential(f.ctx, f.tenant, "k1")), registry.CodeNotFound)
		f.wantCredentials(registry.CredentialQuery{}, "")
		f.must(f.store.TouchCredentials(f.ctx, c.Digest))
		f.wantCode(errOf(f.store.CredentialByDigest(f.ctx, c.Digest)), registry.CodeNotFound)
		seen := f.changesAfter(start)
		if len(seen) == 0 || !seen[0].Revoked || seen[0].ID != "k1" || seen[0].Kind != registry.ChangeCredential {
			f.Errorf("the log has %+v", seen)
		}
	}},
	{name: "use is noted", run: func(f *fixture) {
		a, b := f.issue(f.credential("a")), f.issue(f.credential("b"))
		f.must(f.store.TouchCredentials(f.ctx))
		f.must(f.store.TouchCredentials(f.ctx, a.Digest, f.digest("never")))
		a, err := f.store.CredentialByDigest(f.ctx, a.Digest)
		f.must(err)
		if a.LastUsed.Before(a.CreatedAt) {
			f.Errorf("made %v, used %v", a.CreatedAt, a.LastUsed)
		}
		b, err = f.store.CredentialByDigest(f.ctx, b.Digest)
		f.must(err)
		if !b.LastUsed.IsZero() {
			f.Errorf("b was used %v", b.LastUsed)
		}
	}},
	{name: "the log keeps the order, and numbers its changes", run: func(f *fixture) {
		start := f.lastChange()
		var want []registry.CredentialChange
		for i, kind := range []registry.ChangeKind{
			registry.ChangeUser, registry.ChangeDevice, registry.ChangeJWT, registry.ChangeCredential,
		} {
			c, err := f.store.AppendChange(f.ctx, registry.CredentialChange{
				Tenant: f.tenant, Kind: kind, ID: fmt.Sprintf("ü {%d}\n", i), Revoked: i%2 == 0,
				Device: fmt.Sprintf("d%d", i), User: []string{"", "ann"}[i%2],
			})
			f.must(err)
			if c.Seq == 0 || c.At.IsZero() || time.Since(c.At).Abs() > time.Minute {
				f.Errorf("appended %+v", c)
			}
			want = append(want, c)
		}
		if got := f.changesAfter(start); !slices.Equal(got, want) {
			f.Errorf("read %+v\nwant %+v", got, want)
		}
		if got := f.changesAfter(want[1].Place); !slices.Equal(got, want[2:]) {
			f.Errorf("from the middle: %+v", got)
		}
		page, err := f.store.Changes(f.ctx, want[3].Place, 0)
		f.must(err)
		if page.Last < want[3].Seq {
			f.Errorf("the last is %d, want %d", page.Last, want[3].Seq)
		}
		for _, bad := range []registry.CredentialChange{
			{Tenant: f.tenant, Kind: "x", ID: "a"}, {Tenant: f.tenant, Kind: registry.ChangeUser},
			{Tenant: "", Kind: registry.ChangeUser, ID: "a"}, {Tenant: f.tenant, Kind: registry.ChangeUser, ID: "\xff"},
		} {
			f.wantCode(errOf(f.store.AppendChange(f.ctx, bad)), registry.CodeInvalidRequest)
		}
	}},
}

// credential returns a key that can be stored.
func (f *fixture) credential(id string, changes ...func(*registry.Credential)) registry.Credential {
	c := registry.Credential{Tenant: f.tenant, ID: id, Kind: registry.CredentialKey, Digest: f.digest(id)}
	for _, change := range changes {
		change(&c)
	}
	return c
}

// digest returns a text in the format of a secret's digest.
func (f *fixture) digest(id string) string {
	text := fmt.Sprintf("%x", f.id+id)
	return (text + strings.Repeat("0", 64))[:64]
}

func (f *fixture) issue(c registry.Credential) registry.Credential {
	f.Helper()
	made, err := f.store.CreateCredential(f.ctx, c)
	f.must(err)
	return made
}

func (f *fixture) wantCredential(got, want registry.Credential) {
	f.Helper()
	if !reflect.DeepEqual(got, want) {
		f.Errorf("credential %+v\nwant       %+v", got, want)
	}
}

// wantCredentials checks the ids that a query finds, read two at a time.
func (f *fixture) wantCredentials(q registry.CredentialQuery, want string) {
	f.Helper()
	q.Tenant, q.Limit = f.tenant, 2
	var ids []string
	for pages := 0; pages < 100; pages++ {
		page, next, err := f.store.Credentials(f.ctx, q)
		f.must(err)
		for _, c := range page {
			ids = append(ids, c.ID)
		}
		if next == "" {
			if got := strings.Join(ids, " "); got != want {
				f.Errorf("listed %q, want %q", got, want)
			}
			return
		}
		q.After = next
	}
	f.Error("the list does not end")
}

// lastChange returns a place after which the log has only changes of this subtest, and of concurrent subtests.
func (f *fixture) lastChange() registry.FeedID {
	f.Helper()
	c, err := f.store.AppendChange(f.ctx, registry.CredentialChange{
		Tenant: f.tenant, Kind: registry.ChangeUser, ID: "nobody",
	})
	f.must(err)
	return c.Place
}

// changesAfter returns the changes of this subtest after a place, and checks that no sequence number is missing.
func (f *fixture) changesAfter(place registry.FeedID) []registry.CredentialChange {
	f.Helper()
	var own []registry.CredentialChange
	for seq := int64(0); ; {
		page, err := f.store.Changes(f.ctx, place, 3)
		f.must(err)
		if len(page.Changes) == 0 {
			return own
		}
		for _, c := range page.Changes {
			if seq != 0 && c.Seq != seq+1 {
				f.Fatalf("change %d comes after %d", c.Seq, seq)
			}
			seq, place = c.Seq, c.Place
			if c.Tenant == f.tenant {
				own = append(own, c)
			}
		}
	}
}

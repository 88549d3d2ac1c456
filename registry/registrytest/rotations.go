package registrytest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// rotationTests are about credentials with two secrets. A secret is named by the id of its digest.
var rotationTests = []subtest{
	{name: "a rotated credential has two secrets until the overlap ends", run: func(f *fixture) {
		made := f.issue(f.credential("s1", func(c *registry.Credential) {
			c.User, c.Name, c.Kind, c.DeviceID = "ann", "phone", registry.CredentialDevice, "d1"
		}))
		f.must(f.store.TouchCredentials(f.ctx, made.Digest))
		place := f.lastChange()
		got := f.rotate("s1", "s2", registry.Rotation{Overlap: time.Hour})
		if got.Digest != f.digest("s2") || got.Former != f.digest("s1") || !got.LastUsed.IsZero() ||
			time.Until(got.FormerEnds) > time.Hour || time.Until(got.FormerEnds) < 50*time.Minute {
			f.Errorf("rotated to %+v", got)
		}
		if changes := f.changesAfter(place); len(changes) != 1 || changes[0].ID != "s1" || changes[0].Revoked {
			f.Errorf("logged %+v", changes)
		}
		f.wantSecrets("s1", "s1 s2")
		old, err := f.store.CredentialByDigest(f.ctx, f.digest("s1"))
		f.must(err)
		if old.Digest != f.digest("s1") || !old.ExpiresAt.Equal(got.FormerEnds) || old.ID != "s1" ||
			old.User != "ann" ||
			!old.CreatedAt.Equal(made.CreatedAt) {
			f.Errorf("by the former secret: %+v", old)
		}
		paired, err := f.store.PairedDevices(f.ctx, f.tenant, "d1")
		f.must(err)
		if len(paired) != 1 || paired[0].Digest != f.digest("s2") {
			f.Errorf("paired %+v", paired)
		}
		f.wantCredentials(registry.CredentialQuery{DeviceID: "d1"}, "s1")
	}},
	{name: "the end of an overlap leaves the new secret", run: func(f *fixture) {
		f.issue(f.credential("s1"))
		f.rotate("s1", "s2", registry.Rotation{Overlap: briefly})
		f.eventually("the former secret has ended", func() bool {
			_, err := f.store.CredentialByDigest(f.ctx, f.digest("s1"))
			return errors.Is(err, registry.CodeNotFound)
		})
		f.wantSecrets("s1", "s2")
		c, err := f.store.Credential(f.ctx, f.tenant, "s1")
		f.must(err)
		if c.Former != "" || !c.FormerEnds.IsZero() {
			f.Errorf("still has %+v", c)
		}
		f.rotate("s1", "s3", registry.Rotation{})
		f.wantSecrets("s1", "s3")
	}},
	{name: "an update ends the former secret before the overlap does, and sets none", run: func(f *fixture) {
		f.issue(f.credential("s1"))
		update := func(change func(*registry.Credential)) registry.Credential {
			c, err := f.store.UpdateCredential(f.ctx, f.tenant, "s1", func(c *registry.Credential) error {
				change(c)
				return nil
			})
			f.must(err)
			return c
		}
		update(func(c *registry.Credential) { c.Former, c.FormerEnds = f.digest("s0"), time.Now().Add(time.Hour) })
		f.wantSecrets("s1", "s1")
		f.rotate("s1", "s2", registry.Rotation{Overlap: time.Hour})
		if c := update(func(c *registry.Credential) { c.Renew = true }); c.FormerEnds.IsZero() || !c.Renew {
			f.Errorf("another update: %+v", c)
		}
		update(func(c *registry.Credential) { c.FormerEnds = c.FormerEnds.Add(time.Hour) })
		f.wantSecrets("s1", "s1 s2")
		update(func(c *registry.Credential) { c.FormerEnds = c.CreatedAt })
		f.wantSecrets("s1", "s2")
		f.rotate("s1", "s3", registry.Rotation{Overlap: time.Hour})
		f.wantSecrets("s1", "s2 s3")
	}},
	{name: "it shows which secret is used", run: func(f *fixture) {
		f.issue(f.credential("s1"))
		f.rotate("s1", "s2", registry.Rotation{Overlap: time.Hour})
		used := func() (current, former bool) {
			page, _, err := f.store.Credentials(f.ctx, registry.CredentialQuery{Tenant: f.tenant})
			f.must(err)
			byID, err := f.store.Credential(f.ctx, f.tenant, "s1")
			f.must(err)
			f.wantCredential(page[0], byID)
			return !byID.LastUsed.IsZero(), !byID.FormerUsed.IsZero()
		}
		if current, former := used(); current || former {
			f.Errorf("used before: %v %v", current, former)
		}
		f.must(f.store.TouchCredentials(f.ctx, f.digest("s1")))
		if current, former := used(); current || !former {
			f.Errorf("the former one was used: %v %v", current, former)
		}
		f.must(f.store.TouchCredentials(f.ctx, f.digest("s2"), f.digest("s1")))
		if current, former := used(); !current || !former {
			f.Errorf("both were used: %v %v", current, former)
		}
		f.wantSecrets("s1", "s1 s2")
	}},
	{name: "a second rotation keeps two secrets", run: func(f *fixture) {
		f.issue(f.credential("s1"))
		f.rotate("s1", "s2", registry.Rotation{Overlap: time.Hour})
		first := f.rotate("s1", "s3", registry.Rotation{Overlap: time.Hour})
		f.wantSecrets("s1", "s2 s3")
		// A device that lost the answer still has the former secret, which cannot prolong its own life.
		again := f.rotate("s1", "s4", registry.Rotation{Overlap: 9 * time.Hour, Keep: f.digest("s2")})
		f.wantSecrets("s1", "s2 s4")
		if !again.FormerEnds.Equal(first.FormerEnds) {
			f.Errorf("the former secret ends at %v, then at %v", first.FormerEnds, again.FormerEnds)
		}
		f.must(errOf(f.store.UpdateCredential(f.ctx, f.tenant, "s1", func(c *registry.Credential) error {
			c.Name, c.Former = "renamed", ""
			return nil
		})))
		f.wantSecrets("s1", "s2 s4")
		for _, keep := range []string{"s1", "s3", "s9"} {
			f.wantCode(errOf(f.store.RotateCredential(f.ctx, f.tenant, "s1", registry.Rotation{
				Digest: f.digest("s5"), Keep: f.digest(keep),
			})), registry.CodeNotFound)
		}
		f.wantSecrets("s1", "s2 s4")
	}},
	{name: "a revocation ends both secrets", run: func(f *fixture) {
		f.issue(f.credential("s1"))
		f.rotate("s1", "s2", registry.Rotation{Overlap: time.Hour})
		f.must(errOf(f.store.RevokeCredential(f.ctx, f.tenant, "s1")))
		f.wantSecrets("s1", "")
		f.wantCredentials(registry.CredentialQuery{}, "")
		f.wantCode(errOf(f.store.RotateCredential(f.ctx, f.tenant, "s1", registry.Rotation{
			Digest: f.digest("s3"), Overlap: time.Hour,
		})), registry.CodeNotFound)
		f.wantSecrets("s1", "")
	}},
	{name: "malformed rotations are refused", run: func(f *fixture) {
		f.issue(f.credential("s1"))
		f.issue(f.credential("t1"))
		for _, r := range []registry.Rotation{
			{Digest: "abc", Overlap: time.Hour}, {Digest: f.digest("s2"), Overlap: -1},
			{Digest: f.digest("s2"), Overlap: registry.MaxOverlap + 1}, {Digest: f.digest("t1"), Overlap: time.Hour},
		} {
			f.wantCode(errOf(f.store.RotateCredential(f.ctx, f.tenant, "s1", r)), registry.CodeInvalidRequest)
		}
		f.wantSecrets("s1", "s1")
		f.wantSecrets("t1", "t1")
	}},
	{name: "rotations and a revocation at the same time", run: func(f *fixture) {
		for round := range 5 {
			id := fmt.Sprintf("s%d.", round)[:2]
			f.issue(f.credential(id))
			var done sync.WaitGroup
			digests := []string{f.digest(id)}
			for i := range 4 {
				digest := f.digest(fmt.Sprintf("%s-%d", id, i))
				digests = append(digests, digest)
				done.Go(func() {
					_, _ = f.store.RotateCredential(f.ctx, f.tenant, id,
						registry.Rotation{Digest: digest, Overlap: time.Hour})
				})
			}
			revoked := round%2 == 0
			if revoked {
				done.Go(func() { f.must(errOf(f.store.RevokeCredential(f.ctx, f.tenant, id))) })
			}
			done.Wait()
			alive := slices.DeleteFunc(digests, func(d string) bool {
				_, err := f.store.CredentialByDigest(f.ctx, d)
				return err != nil
			})
			if len(alive) > 2 || revoked && len(alive) > 0 || !revoked && len(alive) == 0 {
				f.Errorf("revoked: %v; secrets that work: %d", revoked, len(alive))
			}
		}
	}},
}

// rotate rotates a credential to the secret that an id names.
func (f *fixture) rotate(id, to string, r registry.Rotation) registry.Credential {
	f.Helper()
	r.Digest = f.digest(to)
	c, err := f.store.RotateCredential(f.ctx, f.tenant, id, r)
	f.must(err)
	return c
}

// wantSecrets checks which secrets of a credential work, of s1 to s5 and t1.
func (f *fixture) wantSecrets(id, want string) {
	f.Helper()
	got := ""
	for _, name := range []string{"s1", "s2", "s3", "s4", "s5", "t1"} {
		c, err := f.store.CredentialByDigest(f.ctx, f.digest(name))
		if err == nil && c.ID == id {
			got += " " + name
		}
	}
	if want = " " + want; got != want && want != " "+got {
		f.Errorf("the secrets of %s are%s, want%s", id, got, want)
	}
}

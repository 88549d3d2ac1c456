package redisstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

// The end of a credential is Redis's to keep: no pod needs to be there.
func TestExpiredCredentialsLeaveRedis(t *testing.T) {
	s, ctx := storeOn(t, Options{}), context.Background()
	end := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	for i, expires := range []time.Time{end, {}} {
		c := must[registry.Credential](t)(s.CreateCredential(ctx, registry.Credential{
			Tenant: tenant, ID: fmt.Sprint("k", i), Kind: registry.CredentialKey, Digest: fmt.Sprintf("%064x", i),
			ExpiresAt: expires,
		}))
		if err := s.TouchCredentials(ctx, c.Digest); err != nil { // use does not move the end
			t.Fatal(err)
		}
		space := documents.Space{Kind: "credentials", Owner: c.Digest}
		at := s.conn.Client().PExpireTime(ctx, documentKey(space, "credential")).Val()
		if !expires.IsZero() && at != time.Duration(end.UnixMilli())*time.Millisecond {
			t.Errorf("ends at %v, want %v", at, end)
		}
		soon := time.Duration(time.Now().Add(registry.CredentialIdle-time.Hour).UnixMilli()) * time.Millisecond
		if expires.IsZero() && at < soon {
			t.Errorf("what has no end ends at %v", at)
		}
	}
}

// The log keeps about as many changes as it may; none that is too old.
func TestTheLogOfChangesIsBounded(t *testing.T) {
	s, ctx := storeOn(t, Options{Limits: registry.Limits{ChangeTTL: time.Hour}}), context.Background()
	old := fmt.Sprintf("%d-0", time.Now().Add(-2*time.Hour).UnixMilli())
	for range 300 { // more than a node of a stream has, of which whole ones are trimmed
		id := old[:len(old)-1] + "*"
		if err := s.conn.Client().Do(ctx, "XADD", changesKey, id, "q", 1, "t", tenant, "k", "user", "i", "ann",
			"r", 1).Err(); err != nil {
			t.Fatal(err)
		}
	}
	c := must[registry.CredentialChange](t)(s.AppendChange(ctx, registry.CredentialChange{
		Tenant: tenant, Kind: registry.ChangeUser, ID: "ben", Revoked: true,
	}))
	if n := s.conn.Client().XLen(ctx, changesKey).Val(); n > 110 {
		t.Errorf("%d entries are kept", n)
	}
	page := must[registry.ChangePage](t)(s.Changes(ctx, registry.FeedID{Milli: c.Place.Milli - 1}, 0))
	if len(page.Changes) != 1 {
		t.Errorf("read %+v", page)
	}
}

// What another release has written is no end of the log, and is not passed over: its reader sees that it is not the
// next change.
func TestChangesOfAnotherRelease(t *testing.T) {
	s, ctx := storeOn(t, Options{}), context.Background()
	if err := s.conn.Client().Do(ctx, "XADD", changesKey, "*", "x", "y").Err(); err != nil {
		t.Fatal(err)
	}
	page := must[registry.ChangePage](t)(s.Changes(ctx, registry.FeedID{}, 0))
	if len(page.Changes) != 1 || page.Changes[0].Seq != 0 || page.Changes[0].Place == (registry.FeedID{}) {
		t.Errorf("read %+v", page)
	}
}

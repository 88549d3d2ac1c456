package redisstore_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
)

// TestForgedRevocations: entries of the log of changes that another client of Redis wrote or copied say nothing.
func TestForgedRevocations(t *testing.T) {
	server, ctx := redistest.Start(t), context.Background()
	conn, err := redisstore.Dial(ctx, redisstore.Options{
		URL: server.URL(), Secrets: []string{"a secret that Redis does not know"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	store := conn.Store()
	genuine := registry.CredentialChange{
		Tenant: "acme", Kind: registry.ChangeCredential, ID: "k1", Revoked: true, Device: "phone", User: "ann",
	}
	if _, err := store.AppendChange(ctx, genuine); err != nil {
		t.Fatal(err)
	}
	attacker := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer attacker.Close()
	entry := attacker.XRange(ctx, "fh:changes", "-", "+").Val()[0].Values
	for _, change := range []map[string]any{
		{"q": 2}, {"q": 3, "i": "k2"}, {"q": 4, "k": "user", "i": "anna", "s": ""}, {"q": 5, "t": "other"},
		{"q": 6, "u": "ben"}, {"q": 7, "u": "ben", "w": entry["s"]},
	} {
		values := map[string]any{}
		for name, v := range entry {
			values[name] = v
		}
		for name, v := range change {
			values[name] = v
		}
		if err := attacker.XAdd(ctx, &redis.XAddArgs{Stream: "fh:changes", Values: values}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	page, err := store.Changes(ctx, registry.FeedID{}, 0)
	if err != nil || len(page.Changes) != 7 {
		t.Fatalf("read %d changes: %v", len(page.Changes), err)
	}
	for _, c := range page.Changes[:2] { // the second is a copy of the first, made at the same time
		if c.Place, c.Seq, c.At = (registry.FeedID{}), 0, (genuine.At); c != genuine {
			t.Errorf("read %+v", c)
		}
	}
	for _, c := range page.Changes[2:] {
		if c.Kind != "" || c.ID != "" || c.Revoked || c.Seq == 0 {
			t.Errorf("took %+v", c)
		}
	}
	if n := conn.Bus().Stats().Rejected["forged"] + conn.Bus().Stats().Rejected["unsigned"]; n != 5 {
		t.Errorf("rejected %d", n)
	}
}

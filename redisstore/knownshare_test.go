package redisstore

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

// A key without a user, which can invent any number of devices, keeps its share of those that a tenant remembers. Other
// keys and users still find room.
func TestAKeyDoesNotTakeAllKnownDevices(t *testing.T) {
	t.Parallel()
	s, ctx := storeOn(t, Options{}), t.Context()
	device := func(identity, user, id string) registry.DeviceMemory {
		return registry.DeviceMemory{Life: time.Hour, Identity: identity, KnownDevice: registry.KnownDevice{
			Session: registry.Session{Key: registry.Key{Tenant: tenant, Session: id}, DeviceID: id, UserID: user},
			Tools:   []registry.ToolSpec{spec(t, "camera", "x")}, LastSeen: time.Now(),
		}}
	}
	known := func(id string) bool {
		t.Helper()
		q := registry.KnownQuery{Tenant: tenant, Target: registry.Target{DeviceID: id}}
		found, _, err := s.KnownDevices(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		return len(found) == 1
	}
	remember := func(d registry.DeviceMemory) {
		t.Helper()
		if err := s.RememberDevices(ctx, []registry.DeviceMemory{d}); err != nil {
			t.Fatal(err)
		}
	}
	remember(device("key:1", "", "first"))
	sum := sha256.Sum256([]byte("key:1"))
	const atOnce = 500
	for i := 1; i < registry.MaxKnownOfKey; i += atOnce { // as many devices of the key
		var steps []documents.Step
		for j := i; j < min(i+atOnce, registry.MaxKnownOfKey); j++ {
			steps = append(steps, documents.Join("key."+hex.EncodeToString(sum[:16]), fmt.Sprint(j), time.Hour, 0))
		}
		if _, err := documents.Commit(ctx, s.Documents(), documents.Space{Tenant: tenant, Kind: "sleeping"},
			steps...); err != nil {
			t.Fatal(err)
		}
	}
	remember(device("key:1", "", "more"))
	remember(device("key:2", "", "of another key"))
	remember(device("key:1", "ann", "of a user"))
	remember(device("key:1", "", "first")) // again
	for id, want := range map[string]bool{"first": true, "more": false, "of another key": true, "of a user": true} {
		if known(id) != want {
			t.Errorf("the device %s is known: %v", id, !want)
		}
	}
	remember(device("key:2", "", "first")) // the device has moved to another key
	remember(device("key:1", "", "more"))
	if !known("more") {
		t.Error("a device that left the key still counts")
	}
	if err := s.ForgetDevices(ctx, tenant, "", "more"); err != nil {
		t.Fatal(err)
	}
	remember(device("key:1", "", "the next"))
	if !known("the next") {
		t.Error("a forgotten device still counts")
	}
}

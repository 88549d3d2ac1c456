package memory

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
)

// claimPlaces claims places of conversations of a tenant until there are n, or there is no room.
func claimPlaces(m *Store, tenant string, n int) error {
	for i := range n {
		key := registry.PlaceKey{Tenant: tenant, Session: fmt.Sprint(i)}
		c := registry.PlaceClaim{Key: key, Pod: "a", Kind: "browser"}
		if _, err := m.ClaimPlace(context.Background(), c); err != nil {
			return err
		}
	}
	return nil
}

func TestOneTenantLeavesRoomForPlacesOfOthers(t *testing.T) {
	m, now := storeWithClock()
	if err := claimPlaces(m, "greedy", maxTenantPlaces); err != nil {
		t.Fatal(err)
	}
	if err := claimPlaces(m, "greedy", maxTenantPlaces+1); !errors.Is(err, registry.CodeStoreUnavailable) {
		t.Errorf("one too many: %v", err)
	}
	if err := claimPlaces(m, "modest", 1); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	*now = now.Add(registry.DefaultPlaceTTL + time.Second)
	next := registry.PlaceKey{Tenant: "greedy", Identity: "next"}
	_, err := m.ClaimPlace(context.Background(), registry.PlaceClaim{Key: next, Pod: "a", Kind: "browser"})
	if err != nil || m.conversations.places.count != 1 {
		t.Errorf("%d places are left, %v", m.conversations.places.count, err)
	}
	*now = now.Add(registry.DefaultPlaceTTL)
	if _, err := m.Sweep(context.Background()); err != nil || m.conversations.places.count != 0 {
		t.Errorf("%d places are left after a sweep, %v", m.conversations.places.count, err)
	}
}

func TestErasuresTakeNoRoom(t *testing.T) {
	m, _ := storeWithClock()
	for i := range 2 * maxTenantPlaces {
		key := registry.Key{Tenant: "greedy", Session: fmt.Sprint(i)}
		if i%2 == 0 {
			beginTurn(t, m, key, time.Minute)
		}
		if _, err := m.EraseConversation(context.Background(), key); err != nil {
			t.Fatal(err)
		}
	}
	if n := m.conversations.places.count; n != maxTenantPlaces {
		t.Errorf("%d places are remembered", n)
	}
	if err := claimPlaces(m, "modest", 1); err != nil {
		t.Errorf("another tenant: %v", err)
	}
}

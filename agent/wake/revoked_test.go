package wake

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// A revoked device's registration is forgotten, and those stay that other users made for its id, however many. A change
// of an earlier release does not say whose device it was: then it forgets those that are listed.
func TestARevokedDeviceIsForgottenForItsUser(t *testing.T) {
	s, _ := stuckService(t)
	for i := range 30 {
		registerToken(t, s, "acme", fmt.Sprint("eve", i), "phone", "of eve")
	}
	registerToken(t, s, "acme", "ann", "phone", "of ann")
	change := registry.CredentialChange{
		At: time.Now(), Tenant: "acme", Kind: registry.ChangeCredential, ID: "k1", Revoked: true, Device: "phone",
		User: "ann",
	}
	has := func(user string) bool {
		_, err := s.Registered(t.Context(), registry.WakeRef{Tenant: "acme", User: user, DeviceID: "phone"})
		return err == nil
	}
	s.CredentialsChanged([]registry.CredentialChange{change})
	testkit.Eventually(t, "ann's registration is forgotten", func() bool { return !has("ann") })
	for i := range 30 {
		if eve := fmt.Sprint("eve", i); !has(eve) {
			t.Errorf("the registration of %s is forgotten", eve)
		}
	}
	change.User = ""
	s.CredentialsChanged([]registry.CredentialChange{change})
	testkit.Eventually(t, "a registration is forgotten", func() bool { return !has("eve0") })
}

// slowErasures is a store whose erasures wait for goOn.
type slowErasures struct {
	Store
	began, goOn chan struct{}

	mu     sync.Mutex
	erased map[string]bool
}

func (s *slowErasures) EraseOf(ctx context.Context, tenant, user string, kind registry.PersonalKind) (int, error) {
	select {
	case s.began <- struct{}{}:
	default:
	}
	<-s.goOn
	s.mu.Lock()
	s.erased[user] = true
	s.mu.Unlock()
	return s.Store.EraseOf(ctx, tenant, user, kind)
}

// Revocations that come while an older one is followed are all followed, also when so many wait that the oldest goes.
func TestAFullQueueOfRevocationsLosesOnlyTheOldest(t *testing.T) {
	store := &slowErasures{
		Store: memory.New(memory.Options{}), began: make(chan struct{}, 1), goOn: make(chan struct{}),
		erased: make(map[string]bool),
	}
	s, err := New(Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	revoke := func(users ...string) {
		changes := make([]registry.CredentialChange, len(users))
		for i, user := range users {
			changes[i] = registry.CredentialChange{
				At: time.Now(), Tenant: "acme", Kind: registry.ChangeUser, ID: user, Revoked: true,
			}
		}
		s.CredentialsChanged(changes)
	}
	revoke("first")
	<-store.began
	users := make([]string, maxRevoked)
	for i := range users {
		users[i] = fmt.Sprint("user", i)
	}
	revoke(users...)
	close(store.goOn)
	testkit.Eventually(t, "all revocations are followed", func() bool {
		store.mu.Lock()
		defer store.mu.Unlock()
		return len(store.erased) == maxRevoked+1
	})
}

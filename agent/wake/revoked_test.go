package wake

import (
	"fmt"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
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

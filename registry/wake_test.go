package registry_test

import (
	"testing"

	"github.com/farhand/farhand/registry"
)

func TestWakesAreNamedByKeysOfDevices(t *testing.T) {
	for _, s := range []registry.Session{
		{DeviceID: "phone"}, {UserID: "ann", DeviceID: "phone"}, {UserID: "a:b", DeviceID: "3:x"},
		{UserID: "ann", DeviceID: "ann"}, {UserID: "ann", DeviceID: "phone", Bound: true},
	} {
		want := registry.WakeRef{Tenant: "acme", User: s.UserID, DeviceID: s.DeviceID}
		if s.Bound {
			want.User = ""
		}
		if ref, bound := registry.WakeRefOf("acme", s.DeviceKey()); ref != want || bound != s.Bound {
			t.Errorf("%+v: %+v, %v", s, ref, bound)
		}
	}
}

package registrytest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/registry"
)

var pairedTests = []subtest{
	{name: "a device id is looked up among the paired ones", run: func(f *fixture) {
		f.issue(f.pairedDevice("k1", "cam 1"))
		f.issue(f.pairedDevice("k2", "cam-2"))
		f.issue(f.credential("k3", func(c *registry.Credential) { c.DeviceID = "laptop" })) // an API key pairs nothing
		f.wantPaired("k1 k2", "cam 1", "cam-2", "laptop", "cam", "cam 1", "")
		f.wantPaired("k1", "cam 1")
		f.wantPaired("")
		if found, err := f.store.PairedDevices(f.ctx, f.tenant+"x", "cam 1"); err != nil || len(found) != 0 {
			f.Errorf("of another tenant: %+v, %v", found, err)
		}
		found, err := f.store.PairedDevices(f.ctx, f.tenant, "cam 1")
		f.must(err)
		want, err := f.store.Credential(f.ctx, f.tenant, "k1")
		f.must(err)
		f.wantCredential(found[0], want)
	}},
	{name: "the ids of paired devices are listed", run: func(f *fixture) {
		paired := f.pairedDevice("k1", "cam 1%2")
		paired.User = "ann"
		f.issue(paired)
		f.issue(f.pairedDevice("k2", "d\u043eor:1"))
		f.issue(f.credential("k3", func(c *registry.Credential) { c.DeviceID = "laptop" }))
		f.wantPairedIDs("cam 1%2", "d\u043eor:1")
		start := f.lastChange()
		f.must(errOf(f.store.RevokeCredential(f.ctx, f.tenant, "k1")))
		if seen := f.changesAfter(start); len(seen) != 1 || seen[0].Device == "" || seen[0].User != "ann" {
			f.Errorf("the log has %+v", seen)
		}
		f.wantPairedIDs("d\u043eor:1")
		if ids, err := f.store.PairedIDs(f.ctx, f.tenant+"x"); err != nil || len(ids) != 0 {
			f.Errorf("of another tenant: %q, %v", ids, err)
		}
	}},
	{name: "a device id is paired once", run: func(f *fixture) {
		var made atomic.Int64
		together(8, func(i int) {
			c := f.pairedDevice(fmt.Sprint("k", i), "cam-1")
			switch _, err := f.store.CreateCredential(f.ctx, c); {
			case err == nil:
				made.Add(1)
			case !errors.Is(err, registry.ErrDevicePaired):
				f.Error(err)
			default:
				f.wantCode(errOf(f.store.CredentialByDigest(f.ctx, c.Digest)), registry.CodeNotFound)
			}
		})
		if made.Load() != 1 {
			f.Errorf("%d credentials for one device", made.Load())
		}
		f.issue(f.credential("key", func(c *registry.Credential) { c.DeviceID = "cam-1" }))
		found, err := f.store.PairedDevices(f.ctx, f.tenant, "cam-1")
		f.must(err)
		if len(found) != 1 {
			f.Fatalf("found %+v", found)
		}
		f.must(f.store.TouchCredentials(f.ctx, found[0].Digest))
		f.must(errOf(f.store.UpdateCredential(f.ctx, f.tenant, found[0].ID, func(c *registry.Credential) error {
			c.Name = "renamed"
			return nil
		})))
		f.must(errOf(f.store.RevokeCredential(f.ctx, f.tenant, found[0].ID)))
		f.wantPaired("", "cam-1")
		f.issue(f.pairedDevice("next", "cam-1"))
		f.wantPaired("next", "cam-1")
	}},
	{name: "a device whose credential has expired is not paired", run: func(f *fixture) {
		c := f.pairedDevice("k1", "cam-1")
		c.ExpiresAt = time.Now().Add(briefly)
		f.issue(c)
		f.eventually("it is paired no longer", func() bool {
			found, err := f.store.PairedDevices(f.ctx, f.tenant, "cam-1")
			return err == nil && len(found) == 0
		})
		f.issue(f.pairedDevice("k2", "cam-1"))
		f.wantPaired("k2", "cam-1")
	}},
}

// pairedDevice returns a valid credential of a paired device.
func (f *fixture) pairedDevice(id, device string) registry.Credential {
	return f.credential(id, func(c *registry.Credential) { c.Kind, c.DeviceID = registry.CredentialDevice, device })
}

// wantPairedIDs checks which device ids are paired.
func (f *fixture) wantPairedIDs(want ...string) {
	f.Helper()
	ids, err := f.store.PairedIDs(f.ctx, f.tenant)
	f.must(err)
	slices.Sort(ids)
	if !slices.Equal(ids, want) {
		f.Errorf("paired %q, want %q", ids, want)
	}
}

// wantPaired checks the ids of the credentials that belong to device ids.
func (f *fixture) wantPaired(want string, devices ...string) {
	f.Helper()
	found, err := f.store.PairedDevices(f.ctx, f.tenant, devices...)
	f.must(err)
	var ids []string
	for _, c := range found {
		ids = append(ids, c.ID)
	}
	slices.Sort(ids)
	if got := strings.Join(ids, " "); got != want {
		f.Errorf("paired %q, want %q", got, want)
	}
}

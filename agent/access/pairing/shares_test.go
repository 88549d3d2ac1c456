package pairing_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/registry"
)

// Addresses of one network, or of very many, leave places for devices of others.
func TestNetworksLeavePlaces(t *testing.T) {
	t.Parallel()
	address := map[string]func(n int) string{
		"one IPv4 network":   func(n int) string { return fmt.Sprintf("198.51.100.%d/32", n) },
		"many IPv4 networks": func(n int) string { return fmt.Sprintf("10.%d.0.1/32", n) },
		"one IPv6 network":   func(n int) string { return fmt.Sprintf("2001:db8:%x::/64", n) },
		"many IPv6 networks": func(n int) string { return fmt.Sprintf("2a%02x:1::/64", n) },
	}
	for name, of := range address {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			taken := 0
			for n := range 72 {
				for range registry.MaxPairingsOfSource {
					_, err := f.Ask(t.Context(), pairing.Request{}, netip.MustParsePrefix(of(n)))
					if err != nil && !errors.Is(err, registry.ErrPairingsFull) {
						t.Fatal(err)
					}
					if err == nil {
						taken++
					}
				}
			}
			if taken < registry.MaxPairingsOfSource*6 || taken >= registry.MaxPairings {
				t.Errorf("%d places were taken", taken)
			}
			for _, other := range []string{"203.0.113.7/32", "2001:470:1::/64"} {
				_, err := f.Ask(t.Context(), pairing.Request{}, netip.MustParsePrefix(other))
				f.want("a device of the network of "+other, err, "")
			}
		})
	}
}

// However many wrong codes approvers of other tenants, and other approvers of the tenant, have tried: one who has the
// right code is served, also from the address of those.
func TestWrongCodesOfOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	asked := f.ask(pairing.Request{DeviceID: "cam-1"})
	const alphabet = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
	guess := func(of string, tries, from int) {
		for i := range tries {
			by := pairing.Approver{
				Identity: auth.Identity{
					Tenant: of, Roles: auth.RoleApprover, Credential: fmt.Sprint("key:", from+i%10),
				},
				Source: fmt.Sprintf("10.%d.%d.1/32", from, i%20),
			}
			code := fmt.Sprintf("2222-2%c%c%c", alphabet[i%32], alphabet[i/32%32], alphabet[from%32])
			if _, err := f.Find(t.Context(), by, code); !errors.Is(err, registry.CodeNotFound) &&
				!errors.Is(err, registry.CodeRateLimited) {
				t.Fatal(err)
			}
		}
	}
	for n := range 20 {
		guess(fmt.Sprint("tenant-", n), 100, n)
	}
	guess(tenant, 100, 30)
	by := approver("ann")
	by.Source = "10.3.4.1/32" // which others have used up
	_, err := f.Find(t.Context(), by, asked.Code)
	f.want("the right code", err, "")
}

// Whoever decides second, or looks at a request that was decided, is told so, and is no guesser.
func TestUsedCodes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	asked, other := f.ask(pairing.Request{DeviceID: "cam-1"}), f.ask(pairing.Request{DeviceID: "cam-2"})
	_, err := f.Decide(t.Context(), admin(), "", asked.Code, pairing.Decision{Approve: true})
	f.must(err)
	for range 30 {
		_, err := f.Decide(t.Context(), approver("ann"), "", asked.Code, pairing.Decision{Approve: true})
		if !errors.Is(err, registry.ErrPairingDecided) {
			t.Fatalf("the second decision: %v", err)
		}
	}
	_, err = f.Collect(t.Context(), asked.Secret)
	f.must(err)
	_, err = f.Find(t.Context(), approver("ann"), asked.Code)
	if !errors.Is(err, registry.ErrPairingDecided) {
		t.Errorf("once it was collected: %v", err)
	}
	_, err = f.Find(t.Context(), approver("ann"), other.Code)
	f.want("another code", err, "")
}

// The waiting tools of a tenant's devices are bounded. Those that waited before stay, others are not stored until some
// are decided, and approved ones are offered.
func TestWaitingToolsOfATenant(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, id := f.pair(pairing.Request{DeviceID: "cam-1", Tools: []string{"photo"}})
	photo, erase, more := f.spec("photo", "a"), f.spec("erase", "x"), f.spec("more", "x")
	review := func(tools ...registry.ToolSpec) (waiting string) {
		t.Helper()
		r, err := f.Review(t.Context(), id, tools)
		f.must(err)
		if len(r.Offer) != 1 {
			t.Errorf("%d tools are offered", len(r.Offer))
		}
		return strings.Join(names(r.Waiting, func(w pairing.Waiting) string { return w.Name + ": " + w.Reason }), "; ")
	}
	if got := review(photo, erase); got != "erase: waits for approval" {
		t.Error(got)
	}
	large := registry.ToolSpec{Name: "x", Description: strings.Repeat("x", registry.MaxDeviceDefinitions-1024)}
	others := registry.DeviceTools{Waiting: []registry.ToolSpec{large}}
	taken := 0
	for err := error(nil); err == nil; taken++ {
		if err = f.store.SetDeviceTools(t.Context(), tenant, fmt.Sprint("other", taken), others); err == nil {
			continue
		}
		f.want("others", err, registry.CodeInvalidRequest)
	}
	large.Description = large.Description[:registry.MaxWaitingBytes%others.Size()-2*erase.Size()]
	last := registry.DeviceTools{Waiting: []registry.ToolSpec{large}}
	f.must(f.store.SetDeviceTools(t.Context(), tenant, "last", last))
	more.Description = strings.Repeat("y", 4*erase.Size())
	want := "erase: waits for approval; more: too many tools of this tenant wait for approval"
	if got := review(photo, erase, more.Hashed()); got != want {
		t.Error(got)
	}
	f.must(f.store.SetDeviceTools(t.Context(), tenant, "other0", registry.DeviceTools{}))
	if got := review(photo, erase, more.Hashed()); got != "erase: waits for approval; more: waits for approval" {
		t.Error(got)
	}
}

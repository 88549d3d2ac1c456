package pairing_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/registry"
)

func TestDevices(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, _ := f.pair(pairing.Request{DeviceID: "cam-1", DeviceName: "Door"})
	asked := f.ask(pairing.Request{DeviceID: "ben's"})
	_, err := f.Decide(t.Context(), approver("ben"), "", asked.Code, pairing.Decision{Approve: true})
	f.must(err)
	_, err = f.Collect(t.Context(), asked.Secret)
	f.must(err)

	devices, next, err := f.Devices(t.Context(), approver("ann"), "", 0)
	if err != nil || next != "" || len(devices) != 1 || devices[0].DeviceID != "cam-1" {
		t.Errorf("what ann sees: %+v, %q, %v", devices, next, err)
	}
	for _, id := range []string{c.ID, "cam-1"} {
		d, err := f.Device(t.Context(), admin(), id)
		if err != nil || d.ID != c.ID || d.Name != "Door" {
			t.Errorf("%s: %+v, %v", id, d, err)
		}
	}
	for _, id := range []string{"ben's", "unknown", ""} {
		_, err := f.Device(t.Context(), approver("ann"), id)
		f.want(id, err, registry.CodeNotFound)
		_, err = f.Rename(t.Context(), approver("ann"), id, "mine")
		f.want("rename "+id, err, registry.CodeNotFound)
		f.want("revoke "+id, f.Revoke(t.Context(), approver("ann"), id), registry.CodeNotFound)
		_, err = f.ApproveTools(t.Context(), approver("ann"), id, nil, []string{"x"})
		f.want("tools of "+id, err, registry.CodeNotFound)
	}
	_, err = f.Rename(t.Context(), admin(), "cam-1", strings.Repeat("x", 300))
	f.want("a long name", err, registry.CodeInvalidRequest)
	d, err := f.Rename(t.Context(), admin(), "cam-1", "Back door")
	if err != nil || d.Name != "Back door" {
		t.Errorf("renamed: %+v, %v", d, err)
	}
	f.must(f.Revoke(t.Context(), admin(), "cam-1"))
	f.want("again", f.Revoke(t.Context(), admin(), "cam-1"), registry.CodeNotFound)
	f.pair(pairing.Request{DeviceID: "cam-1"}) // the id is free again
}

// The first definition of what was approved in advance is pinned. All else waits, also another definition of it, until
// a person approves the definition that they looked at.
func TestToolsThatWait(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, id := f.pair(pairing.Request{DeviceID: "cam-1", Tools: []string{"photo"}})
	if !pairing.IsPaired(id) || pairing.IsPaired(auth.Identity{Credential: "key:x"}) {
		t.Error("who is paired")
	}
	review := func(tools ...registry.ToolSpec) (offer, waiting string) {
		r, err := f.Review(t.Context(), id, tools)
		f.must(err)
		offered := names(r.Offer, func(s registry.ToolSpec) string { return s.Name })
		waits := names(r.Waiting, func(w pairing.Waiting) string { return w.Name + ": " + w.Reason })
		return strings.Join(offered, " "), strings.Join(waits, "; ")
	}
	photo, changed, erase := f.spec("photo", "a"), f.spec("photo", "b"), f.spec("erase", "x")
	for i, step := range []struct {
		register       []registry.ToolSpec
		offer, waiting string
	}{
		{[]registry.ToolSpec{photo, erase}, "photo", "erase: waits for approval"},
		{[]registry.ToolSpec{photo, erase}, "photo", "erase: waits for approval"},
		{[]registry.ToolSpec{changed}, "", "photo: waits for approval: it was approved with another definition"},
	} {
		if offer, waiting := review(step.register...); offer != step.offer || waiting != step.waiting {
			t.Errorf("step %d: offers %q, waiting %q", i, offer, waiting)
		}
	}
	d, err := f.Device(t.Context(), admin(), "cam-1")
	f.must(err)
	if len(d.Waiting) != 2 || len(d.Pinned) != 1 || len(d.Pins()) != 1 || d.Pins()[0].Hash != photo.Hash() {
		t.Errorf("the device: %+v", d)
	}
	approve := func(by pairing.Approver, s registry.ToolSpec, hash string) error {
		_, err := f.ApproveTools(t.Context(), by, c.ID, []registry.ApprovedTool{{Name: s.Name, Hash: hash}}, nil)
		return err
	}
	restricted := approver("ann", func(id *auth.Identity) { id.Tools = "photo*" })
	f.want("another definition", approve(admin(), erase, "other"), registry.CodeInvalidRequest)
	f.want("beyond the approver's tools", approve(restricted, erase, erase.Hash()), registry.CodeForbidden)
	f.want("within the approver's tools", approve(restricted, changed, changed.Hash()), "")
	f.want("approve", approve(admin(), erase, erase.Hash()), "")
	approvals, err := f.Approvals(t.Context(), id)
	approved, withdrawn := approvals.Changes([]registry.ToolSpec{photo})
	got := names(approved, func(s registry.ToolSpec) string { return s.Name + " " + s.Description })
	slices.Sort(got)
	if err != nil || strings.Join(got, "; ") != "erase x; photo b" || len(withdrawn) != 0 {
		t.Errorf("approved %q, withdrawn %q, %v", got, withdrawn, err)
	}
	_, err = f.ApproveTools(t.Context(), admin(), c.ID, nil, []string{"erase*"})
	f.want("reject a glob", err, registry.CodeInvalidRequest)
	d, err = f.ApproveTools(t.Context(), admin(), c.ID, nil, []string{"erase"})
	if err != nil || len(d.Rejected()) != 1 || d.Rejected()[0] != "erase" || len(d.Waiting) != 0 {
		t.Errorf("rejected: %+v, %v", d, err)
	}
	approvals, err = f.Approvals(t.Context(), id)
	if _, withdrawn := approvals.Changes([]registry.ToolSpec{changed, erase}); err != nil ||
		strings.Join(withdrawn, " ") != "erase" {
		t.Errorf("withdrawn %q, %v", withdrawn, err)
	}
	if offer, waiting := review(erase); offer != "" || waiting != "erase: was rejected by an approver" {
		t.Errorf("rejected: offers %q, waiting %q", offer, waiting)
	}
}

// Definitions that wait take no more room than they may.
func TestWaitingToolsAreBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, id := f.pair(pairing.Request{DeviceID: "cam-1", Tools: []string{}})
	var tools []registry.ToolSpec
	for i := range 26 {
		tools = append(tools, f.spec("tool"+string(rune('a'+i)), strings.Repeat("x", 900)))
		tools[i].Parameters = []byte(`{"type":"object","description":"` + strings.Repeat("y", 16<<10) + `"}`)
	}
	r, err := f.Review(t.Context(), id, tools)
	f.must(err)
	reasons := strings.Join(names(r.Waiting, func(w pairing.Waiting) string { return w.Reason }), ";")
	if !strings.Contains(reasons, "too many tools") || len(r.Offer) != 0 {
		t.Errorf("%.200s", reasons)
	}
	_, err = f.Review(t.Context(), auth.Identity{Tenant: tenant, Credential: "device:gone"}, tools)
	f.want("a device that was revoked", err, registry.CodeNotFound)
	_, err = f.Approvals(t.Context(), auth.Identity{Tenant: tenant, Credential: "device:gone"})
	f.want("a device that was revoked", err, registry.CodeNotFound)
}

// Revoking a paired device forgets that device, and not those of others who chose the id: their calls still wait for
// them.
func TestRevokingForgetsOneDevice(t *testing.T) {
	f := newFixture(t)
	f.pair(pairing.Request{DeviceID: "lamp"})
	remember := func(user string, bound bool) {
		session := registry.Session{
			Key: registry.Key{Tenant: tenant, Session: "of-" + user}, DeviceID: "lamp", UserID: user, Bound: bound,
		}
		f.must(f.store.RememberDevices(t.Context(), []registry.DeviceMemory{{
			KnownDevice: registry.KnownDevice{Session: session, LastSeen: time.Now()}, Life: time.Hour,
		}}))
	}
	remember("", true)
	remember("", false)
	remember("ben", false)
	f.must(f.Revoke(t.Context(), admin(), "lamp"))
	known, _, err := f.store.KnownDevices(t.Context(), registry.KnownQuery{
		Tenant: tenant, Target: registry.Target{DeviceID: "lamp"},
	})
	if f.must(err); len(known) != 1 || known[0].Session.UserID != "ben" {
		t.Errorf("known afterwards: %+v", known)
	}
}

// A cursor of the list names no credential but those of the approver's own devices, and leaves none of these out.
func TestCursorsOfDevices(t *testing.T) {
	f := newFixture(t)
	owners := make(map[string]string)
	for i := range 480 {
		c := registry.Credential{
			Tenant: tenant, ID: fmt.Sprintf("%011x%012x", i+1, i), Kind: registry.CredentialDevice,
			DeviceID: fmt.Sprint("d", i), User: []string{"ann", "", "ben"}[min(i%120, 2)],
			Digest: auth.SecretDigest(fmt.Sprint(i)), Roles: []string{auth.NameDevice}, CreatedBy: "token",
		}
		_, err := f.store.CreateCredential(t.Context(), c)
		f.must(err)
		owners[c.ID] = c.User
	}
	for limit := 1; limit < 5; limit++ {
		listed := 0
		for after, pages := "", 0; ; pages++ {
			page, next, err := f.Devices(t.Context(), approver("ann"), after, limit)
			f.must(err)
			if listed += len(page); owners[next] == "ben" {
				t.Errorf("limit %d: the cursor after %q is %s of ben", limit, after, next)
			}
			if after = next; next == "" {
				break
			}
			if pages > 100 {
				t.Fatal("the list does not end")
			}
		}
		if listed != 8 {
			t.Errorf("limit %d: %d devices", limit, listed)
		}
	}
}

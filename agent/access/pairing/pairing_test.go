package pairing_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

func TestAskIsChecked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, r := range map[string]pairing.Request{
		"device id": {DeviceID: strings.Repeat("x", 300)}, "name": {DeviceName: "a\u202eb"},
		"key": {PublicKey: ed25519.PublicKey("short")}, "glob": {Tools: []string{"photo*"}},
		"empty name": {Tools: []string{""}}, "slash": {Tools: []string{"a/b"}},
		"many": {Tools: make([]string, registry.MaxPairingTools+1)},
	} {
		_, err := f.Ask(t.Context(), r, source(1))
		f.want(name, err, registry.CodeInvalidRequest)
	}
	if _, err := pairing.New(pairing.Config{}); err == nil {
		t.Error("a service without a store")
	}
	off := newFixture(t, func(c *pairing.Config) { c.Mode = pairing.ModeOff })
	_, err := off.Ask(t.Context(), pairing.Request{}, source(1))
	off.want("off", err, registry.CodeNotFound)
}

// Who asks is in the audit log, without what is secret; what is refused is not.
func TestAskIsAudited(t *testing.T) {
	t.Parallel()
	for _, mode := range pairing.Modes() {
		var lines noted
		f := newFixture(t, func(c *pairing.Config) { c.Mode, c.Audit = mode, &lines })
		if mode == pairing.ModeOff {
			_, _ = f.Ask(t.Context(), pairing.Request{}, source(1))
			if len(lines) != 0 {
				t.Errorf("off: %+v", lines)
			}
			continue
		}
		asked := f.ask(pairing.Request{DeviceID: "cam-1"})
		if len(lines) != 1 || lines[0].Action != registry.AuditPairAsk || lines[0].Tenant != tenant ||
			lines[0].Target != asked.ID || lines[0].DeviceID != "cam-1" || lines[0].Actor.Source != "10.0.0.1" {
			t.Errorf("%s: %+v", mode, lines)
		}
		if f.Open() != (mode == pairing.ModeOpen) {
			t.Errorf("%s: open: %t", mode, f.Open())
		}
	}
}

// One source asks so often, and has so many requests; others are served.
func TestSourcesAskSoOften(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for range registry.MaxPairingsOfSource {
		if _, err := f.Ask(t.Context(), pairing.Request{}, source(1)); err != nil {
			t.Fatal(err)
		}
	}
	full := 0
	for range int(pairing.RequestRate().Burst) {
		_, err := f.Ask(t.Context(), pairing.Request{}, source(1))
		f.want("one more", err, registry.CodeRateLimited)
		if errors.Is(err, registry.ErrPairingsFull) {
			full++
		}
	}
	if want := int(pairing.RequestRate().Burst) - registry.MaxPairingsOfSource; full < want || full > want+1 {
		t.Errorf("%d found no room, want %d", full, want)
	}
	_, err := f.Ask(t.Context(), pairing.Request{}, source(2))
	f.want("another source", err, "")
}

func TestCodes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	asked := f.ask(pairing.Request{DeviceID: "cam-1", DeviceName: "Door"})
	typed := strings.ToLower(strings.ReplaceAll(asked.Code, "-", " "))
	view, err := f.Find(t.Context(), admin(), typed)
	if err != nil || view.ID != asked.ID || view.Known || view.DeviceName != "Door" {
		t.Errorf("found %+v, %v", view, err)
	}
	for code, want := range map[string]registry.Code{
		"": registry.CodeInvalidRequest, "ABCD-234": registry.CodeInvalidRequest,
		"ABCD-2341": registry.CodeInvalidRequest,
		"2222-2222": registry.CodeNotFound,
	} {
		_, err := f.Find(t.Context(), admin(), code)
		f.want(code, err, want)
	}
	_, err = f.Decide(t.Context(), admin(), "another-id", asked.Code, pairing.Decision{})
	f.want("the id of another request", err, registry.CodeNotFound)
	_, err = f.Decide(t.Context(), admin(), asked.ID, "", pairing.Decision{})
	f.want("by its id only", err, registry.CodeNotFound)
	for range 20 {
		_, err = f.Find(t.Context(), admin(), "2222-2222")
	}
	f.want("guessing", err, registry.CodeRateLimited)
}

// An approver pairs devices for themselves, with tools their credential is good for, and takes no device of another.
func TestDecisions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.pair(pairing.Request{DeviceID: "taken"})
	f.pair(pairing.Request{DeviceID: "replaced"})
	theirs := f.ask(pairing.Request{DeviceID: "ben's"})
	_, err := f.Decide(t.Context(), approver("ben"), "", theirs.Code, pairing.Decision{Approve: true})
	f.must(err)
	_, err = f.Collect(t.Context(), theirs.Secret)
	f.must(err)
	scoped := func(tools string) pairing.Approver {
		return approver("ann", func(id *auth.Identity) { id.Tools = tools })
	}
	bound := approver("ann", func(id *auth.Identity) { id.Device = "phone" })
	grouped := approver("ann", func(id *auth.Identity) { id.Context = "group" })
	for name, c := range map[string]struct {
		device string
		by     pairing.Approver
		d      pairing.Decision
		want   registry.Code
	}{
		"for themselves":    {"", approver("ann"), pairing.Decision{}, ""},
		"by name":           {"", approver("ann"), pairing.Decision{User: "ann", Name: "N"}, ""},
		"for another":       {"", approver("ann"), pairing.Decision{User: "ben"}, registry.CodeForbidden},
		"an admin":          {"", admin(), pairing.Decision{User: "ben"}, ""},
		"malformed user":    {"", admin(), pairing.Decision{User: "a\u202eb"}, registry.CodeInvalidRequest},
		"malformed tools":   {"", admin(), pairing.Decision{Tools: []string{"a b"}}, registry.CodeInvalidRequest},
		"too many tools":    {"", admin(), pairing.Decision{Tools: make([]string, 200)}, registry.CodeInvalidRequest},
		"bound, another":    {"laptop", bound, pairing.Decision{}, registry.CodeForbidden},
		"bound, itself":     {"phone", bound, pairing.Decision{}, ""},
		"for groups only":   {"", grouped, pairing.Decision{}, registry.CodeForbidden},
		"paired":            {"taken", admin(), pairing.Decision{}, registry.CodeInvalidRequest},
		"paired, another's": {"ben's", approver("ann"), pairing.Decision{Replace: true}, registry.CodeForbidden},
		"replaced":          {"replaced", admin(), pairing.Decision{Replace: true}, ""},
		"tools asked for":   {"", scoped("weather*"), pairing.Decision{}, registry.CodeForbidden},
		"tools within":      {"", scoped("weather* photo"), pairing.Decision{}, ""},
		"all tools":         {"", scoped("weather*"), pairing.Decision{Tools: []string{"*"}}, registry.CodeForbidden},
		"a glob within":     {"", scoped("weather*"), pairing.Decision{Tools: []string{"weather_*"}}, ""},
		"no tools":          {"", scoped("weather*"), pairing.Decision{Tools: []string{}}, ""},
	} {
		asked := f.ask(pairing.Request{DeviceID: c.device, Tools: []string{"photo"}})
		c.d.Approve = true
		_, err := f.Decide(t.Context(), c.by, "", asked.Code, c.d)
		f.want(name, err, c.want)
		if c.want != "" { // it still waits
			_, err = f.Decide(t.Context(), admin(), asked.ID, asked.Code, pairing.Decision{})
			f.want(name+", rejected", err, "")
		}
	}
	open := newFixture(t, func(c *pairing.Config) { c.Mode = pairing.ModeOpen })
	known, _ := open.pair(pairing.Request{DeviceID: "cam-1"})
	asked := open.ask(pairing.Request{DeviceID: known.DeviceID})
	open.ask(pairing.Request{DeviceID: "cam-2"})
	views, err := open.Waiting(t.Context(), admin())
	if err != nil || len(views) != 2 || views[0].Known == views[1].Known {
		t.Errorf("waiting: %+v, %v", views, err)
	}
	for i, want := range []registry.Code{"", registry.CodeInvalidRequest} {
		view, err := open.Decide(t.Context(), admin(), asked.ID, "", pairing.Decision{})
		open.want("decided by its id", err, want)
		if i == 0 && pairing.StateOf(view.Pairing) != pairing.StateRejected {
			t.Errorf("decided: %+v", view)
		}
	}
}

func TestCollect(t *testing.T) {
	t.Parallel()
	var ended error
	f := newFixture(t, func(c *pairing.Config) {
		c.Ended = func(context.Context, *auth.Identity) error { return ended }
	})
	state := func(secret string) pairing.State {
		got, err := f.Collect(t.Context(), secret)
		f.must(err)
		return got.State
	}
	approve := func(a pairing.Asked) {
		_, err := f.Decide(t.Context(), admin(), "", a.Code, pairing.Decision{Approve: true, Name: "Door"})
		f.must(err)
	}
	for name, secret := range map[string]string{
		"none": "", "another kind": "fhk_x", "nobody's": "fhr_x", "long": "fhr_" + strings.Repeat("x", 200),
	} {
		_, err := f.Collect(t.Context(), secret)
		f.want(name, err, registry.CodeNotFound)
	}
	rejected := f.ask(pairing.Request{})
	if got := state(rejected.Secret); got != pairing.StatePending {
		t.Errorf("waiting: %s", got)
	}
	_, err := f.Decide(t.Context(), admin(), "", rejected.Code, pairing.Decision{})
	f.must(err)
	if got := state(rejected.Secret); got != pairing.StateRejected {
		t.Errorf("rejected: %s", got)
	}
	for _, c := range []struct {
		ended error
		want  registry.Code
	}{
		{nil, ""}, {registry.Errorf(registry.CodeUnauthenticated, "revoked"), registry.CodeNotFound},
		{registry.StoreUnavailable("read", errors.New("away")), registry.CodeStoreUnavailable},
	} {
		asked := f.ask(pairing.Request{Tools: []string{"photo"}})
		approve(asked)
		ended = c.ended
		got, err := f.Collect(t.Context(), asked.Secret)
		f.want("collected", err, c.want)
		if (got.Credential != "") != (c.want == "") {
			t.Errorf("%v: a credential: %t", c.ended, got.Credential != "")
		}
		ended = nil
	}
}

// Two requests for one device id are approved before either is collected, by different users. One device has the id.
func TestDeviceIDsApprovedTwice(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var all []pairing.Asked
	for _, user := range []string{"ann", "ben"} {
		asked := f.ask(pairing.Request{DeviceID: "same"})
		_, err := f.Decide(t.Context(), approver(user), "", asked.Code, pairing.Decision{Approve: true})
		f.must(err)
		all = append(all, asked)
	}
	if paired, err := f.Paired(t.Context(), tenant, "same"); paired || err != nil {
		t.Errorf("paired before: %v", err)
	}
	_, err := f.Collect(t.Context(), all[1].Secret)
	f.must(err)
	got, err := f.Collect(t.Context(), all[0].Secret)
	if !errors.Is(err, registry.ErrDevicePaired) || got.Credential != "" {
		t.Errorf("the second one: %v", err)
	}
	devices, _, err := f.Devices(t.Context(), admin(), "", 0)
	if err != nil || len(devices) != 1 || devices[0].User != "ben" {
		t.Errorf("paired: %+v, %v", devices, err)
	}
	if paired, err := f.Paired(t.Context(), tenant, "same"); !paired || err != nil {
		t.Errorf("paired after: %v", err)
	}
	page, err := f.store.Changes(t.Context(), registry.FeedID{}, 0)
	f.must(err)
	if len(page.Changes) != 1 || page.Changes[0].Kind != registry.ChangeDevice || page.Changes[0].ID != "same" ||
		page.Changes[0].Revoked {
		t.Errorf("pods are told %+v", page.Changes)
	}
}

// A device whose pairing the pods could not be told of gets no credential.
func TestCollectTellsThePods(t *testing.T) {
	t.Parallel()
	away := registry.StoreUnavailable("append", errors.New("away"))
	f := newFixture(t, func(c *pairing.Config) { c.Store = failing{memory.New(memory.Options{}), away} })
	asked := f.ask(pairing.Request{})
	_, err := f.Decide(t.Context(), admin(), "", asked.Code, pairing.Decision{Approve: true})
	f.must(err)
	got, err := f.Collect(t.Context(), asked.Secret)
	f.want("collected", err, registry.CodeStoreUnavailable)
	if got.Credential != "" {
		t.Error("a credential is told")
	}
}

package pairing_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/registry"
)

// An id with spaces that a reader does not see, or with other characters that are not seen, cannot be asked for.
func TestPaddedIDsAreRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, id := range map[string]string{
		"a space behind": "door-1 ", "a space before": " door-1", "two spaces": "door  1", "only a space": " ",
		"a tab": "door-1\t", "a line": "door-1\n", "no-break space": "door-1\u00a0",
		"ideographic space": "door-1\u3000",
		"zero width":        "door\u200b-1", "soft hyphen": "door\u00ad1", "turned around": "door-\u202e1",
		"tag": "door-1\U000e0041", "filler": "door-1\u3164",
		"escape": "door-1\x1b[8m", "byte order mark": "\ufeffdoor-1",
	} {
		_, err := f.Ask(t.Context(), pairing.Request{DeviceID: id}, source(1))
		f.want(name, err, registry.CodeInvalidRequest)
	}
	for i, id := range []string{"door 1", "AA:BB:CC:00:11:22", "Ann's 📱", "厨房-1", "дверь-1", "[x]", ""} {
		_, err := f.Ask(t.Context(), pairing.Request{DeviceID: id}, source(byte(10+i)))
		f.want(id, err, "")
	}
}

// An approver is shown which device an id may be taken for, also when they look by code and when they have decided.
func TestLookAlikesAreMarked(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *pairing.Config) { c.Mode = pairing.ModeOpen })
	f.pair(pairing.Request{DeviceID: "door-1"})
	for _, tt := range []struct{ id, like, remarks string }{
		{"d\u043eor-1", "door-1", "foreign"}, // a Cyrillic о
		{"ｄｏｏｒ-1", "door-1", "foreign"},
		{"DOOR-1", "door-1", ""},
		{"door-l", "door-1", ""},
		{"do or-1", "door-1", "unusual"},
		{"door-1", "", ""},
		{"door-2", "", ""},
		{"[approved]", "", "unusual"},
		{"d\u00f6\u00f6r-1", "", "foreign"},
	} {
		asked := f.ask(pairing.Request{DeviceID: tt.id})
		check := func(where string, v pairing.View, err error) {
			t.Helper()
			if err != nil || v.LooksLike != tt.like || strings.Join(v.Remarks, " ") != tt.remarks {
				t.Errorf("%s: %q looks like %q, remarks %v, %v", where, tt.id, v.LooksLike, v.Remarks, err)
			}
		}
		waiting, err := f.Waiting(t.Context(), admin())
		f.must(err)
		if len(waiting) != 1 {
			t.Fatalf("%d wait", len(waiting))
		}
		check("list", waiting[0], err)
		v, err := f.Find(t.Context(), admin(), asked.Code)
		check("code", v, err)
		v, err = f.Decide(t.Context(), admin(), "", asked.Code, pairing.Decision{})
		check("decided", v, err)
	}
}

// Two that wait are shown with one another.
func TestRequestsThatLookAlikeAreMarked(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *pairing.Config) { c.Mode = pairing.ModeOpen })
	f.ask(pairing.Request{DeviceID: "cam-1"})
	f.ask(pairing.Request{DeviceID: "\u0441am-1"}) // a Cyrillic с
	f.ask(pairing.Request{DeviceID: "cam-2"})
	waiting, err := f.Waiting(t.Context(), admin())
	f.must(err)
	got := names(waiting, func(v pairing.View) string { return v.DeviceID + " like " + v.LooksLike })
	slices.Sort(got) // requests of one millisecond have no order
	if want := "cam-1 like \u0441am-1; cam-2 like ; \u0441am-1 like cam-1"; strings.Join(got, "; ") != want {
		t.Errorf("%q", got)
	}
}

// Devices that an approver may not see are not named to them. One of theirs is, among those of others.
func TestLookAlikesOfOthersStaySecret(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	pairFor := func(by pairing.Approver, id string) {
		asked := f.ask(pairing.Request{DeviceID: id})
		_, err := f.Decide(t.Context(), by, "", asked.Code, pairing.Decision{Approve: true})
		f.must(err)
		_, err = f.Collect(t.Context(), asked.Secret)
		f.must(err)
	}
	for _, id := range []string{"Door-10", "dOor-10", "doOr-10", "DOor-10", "DoOr-10", "dOOr-10",
		"DOOr-10", "DOOR-10"} {
		pairFor(approver("ben"), id)
	}
	asked := f.ask(pairing.Request{DeviceID: "door-10"})
	v, err := f.Find(t.Context(), approver("ann"), asked.Code)
	if err != nil || v.LooksLike != "" {
		t.Errorf("ann sees %q, %v", v.LooksLike, err)
	}
	pairFor(approver("ann"), "DOOR-1O")
	for who, want := range map[string]string{"ann": "DOOR-1O", "ben": "DOOR-10"} {
		if v, err = f.Find(t.Context(), approver(who), asked.Code); err != nil || v.LooksLike != want {
			t.Errorf("%s: looks like %q, %v", who, v.LooksLike, err)
		}
	}
	like, err := f.LookAlikes(t.Context(), approver("ann", func(id *auth.Identity) { id.Tenant = "other" }), "door-10")
	if err != nil || len(like) != 0 {
		t.Errorf("another tenant sees %v, %v", like, err)
	}
}

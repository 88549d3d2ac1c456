package registry

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func credential() Credential {
	return Credential{
		Tenant: "t", ID: "k_1-a", Kind: CredentialKey, Digest: strings.Repeat("0f", 32), Roles: []string{"caller"},
		User: "ann", PublicKey: []byte{0xff}, Approved: []ApprovedTool{{Name: "echo", Hash: "h"}},
	}
}

func TestOnlySoundCredentialsAreStored(t *testing.T) {
	if err := credential().Validate(); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 1<<20)
	for name, spoil := range map[string]func(*Credential){
		"no tenant":             func(c *Credential) { c.Tenant = "" },
		"no id":                 func(c *Credential) { c.ID = "" },
		"a slot in the id":      func(c *Credential) { c.ID = "{a}" },
		"no kind":               func(c *Credential) { c.Kind = "" },
		"a short digest":        func(c *Credential) { c.Digest = "0f" },
		"a digest in capitals":  func(c *Credential) { c.Digest = strings.Repeat("0F", 32) },
		"a digest that is none": func(c *Credential) { c.Digest = strings.Repeat("zz", 32) },
		"a long name":           func(c *Credential) { c.Name = long },
		"a user of no UTF-8":    func(c *Credential) { c.User = "\xff" },
		"many globs":            func(c *Credential) { c.Tools = long },
		"a long key":            func(c *Credential) { c.PublicKey = []byte(long) },
		"many roles":            func(c *Credential) { c.Roles = strings.Split(long, "x") },
		"a long role":           func(c *Credential) { c.Roles = []string{long} },
		"many tools":            func(c *Credential) { c.Approved = make([]ApprovedTool, maxApproved+1) },
		"a long tool":           func(c *Credential) { c.Approved = []ApprovedTool{{Name: long}} },
	} {
		c := credential()
		spoil(&c)
		if err := c.Validate(); !errors.Is(err, CodeInvalidRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What tells a credential from others stays, whatever a change says.
func TestChangesLeaveWhoItIs(t *testing.T) {
	before := credential()
	after, err := ChangedCredential(before, func(c *Credential) error {
		*c = Credential{Name: "tablet", Roles: c.Roles, ExpiresAt: time.Unix(1, 0)}
		c.Roles[0] = "admin"
		return nil
	})
	if err != nil || after.Name != "tablet" || after.Tenant != "t" || after.User != "ann" || after.ID != before.ID ||
		after.Digest != before.Digest || after.Kind != CredentialKey || after.ExpiresAt.IsZero() {
		t.Errorf("%+v, %v", after, err)
	}
	if before.Roles[0] != "caller" {
		t.Error("the change reached the credential that was given")
	}
	if _, err := ChangedCredential(before, func(*Credential) error { return ErrNoGrant }); !errors.Is(err, ErrNoGrant) {
		t.Errorf("a change that failed: %v", err)
	}
	if small, large := before.MemorySize(), (Credential{Tools: strings.Repeat("a ", 500)}).MemorySize(); large < small {
		t.Errorf("%d bytes, with a kilobyte of globs %d", small, large)
	}
}

func TestOnlySoundChangesAreStored(t *testing.T) {
	sound := CredentialChange{Tenant: "t", Kind: ChangeUser, ID: "ann", Revoked: true}
	if err := sound.Validate(); err != nil || !sound.Remembered() {
		t.Errorf("%v, remembered %v", err, sound.Remembered())
	}
	for name, spoil := range map[string]func(*CredentialChange){
		"no tenant": func(c *CredentialChange) { c.Tenant = "" },
		"no kind":   func(c *CredentialChange) { c.Kind = "" },
		"no id":     func(c *CredentialChange) { c.ID = "" },
		"long id":   func(c *CredentialChange) { c.ID = strings.Repeat("x", maxAttributeLen+1) },
		"no UTF-8":  func(c *CredentialChange) { c.ID = "\xff" },
	} {
		c := sound
		spoil(&c)
		if err := c.Validate(); !errors.Is(err, CodeInvalidRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWindowsThatNobodyCounts(t *testing.T) {
	sound := Window{Name: "a", Limit: 60, Period: time.Minute}
	hourly := Window{Name: "a", Limit: 60, Period: time.Hour}
	if err := CheckWindows([]Window{sound, hourly}); err != nil {
		t.Error(err)
	}
	for name, windows := range map[string][]Window{
		"no limit":      {{Name: "a", Period: time.Minute}},
		"large limit":   {{Name: "a", Limit: MaxWindowLimit + 1, Period: time.Minute}},
		"no period":     {{Name: "a", Limit: 1}},
		"long period":   {{Name: "a", Limit: 1, Period: MaxWindowPeriod + 1}},
		"the same":      {sound, sound},
		"too many":      make([]Window, MaxWindows+1),
		"same in store": {sound, {Name: "a", Limit: 1, Period: time.Minute + time.Microsecond}},
	} {
		if err := CheckWindows(windows); !errors.Is(err, CodeInvalidRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

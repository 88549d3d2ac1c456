package redisstore

import (
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
)

// FuzzWindowKey: whatever tenants and windows are called, their keys tell them apart, and those of a tenant are in one
// slot, that of no other.
func FuzzWindowKey(f *testing.F) {
	f.Add("acme", "8:identity0:", "acme", "8:identity1:")
	f.Add("a}", "{b", "a", "}{b")
	f.Add("", "", "a:limits}:", "\x00")
	f.Fuzz(func(t *testing.T, tenant, name, otherTenant, otherName string) {
		key := func(tenant, name string, period time.Duration) (key, tag string) {
			key = windowKey(tenant, registry.Window{Name: name, Limit: 1, Period: period})
			begin, end := strings.Index(key, "{"), strings.Index(key, "}")
			if begin != len("fh:") || end < begin || len(key) > 100+3*len(tenant) {
				t.Fatalf("%q", key)
			}
			return key, key[begin : end+1]
		}
		one, tag := key(tenant, name, time.Minute)
		if other, otherTag := key(otherTenant, otherName, time.Minute); (one == other) !=
			(tenant == otherTenant && name == otherName) || (tag == otherTag) != (tenant == otherTenant) {
			t.Errorf("%q and %q of %q and %q", one, other, []string{tenant, name}, []string{otherTenant, otherName})
		}
		if other, _ := key(tenant, name, time.Hour); other == one {
			t.Errorf("two periods have the key %q", one)
		}
	})
}

// FuzzUsageField: a row of usage is read back as it was written.
func FuzzUsageField(f *testing.F) {
	f.Add("ann", "photo", "1 2 3 4 5 6 7")
	f.Add("\x00", registry.UsageModels, "")
	f.Add("", "", "9223372036854775807 x -1")
	f.Fuzz(func(t *testing.T, user, tool, numbers string) {
		if strings.Contains(tool, usageSeparator) {
			return // no name of a tool has one
		}
		want := registry.UsageRow{User: user, Tool: tool}
		if key, ok := strings.CutPrefix(user, usageSeparator); ok { // which no user's name begins with
			want.User, want.Key = "", key
		}
		r, ok := parseUsage(usageField(want), numbers)
		if !ok || r.User != want.User || r.Key != want.Key || r.Tool != tool {
			t.Errorf("%q, %q: %+v", user, tool, r)
		}
	})
}

// FuzzAuditEntries: an entry of an audit log that somebody else has written is read without harm, and the ids of its
// lines can be used.
func FuzzAuditEntries(f *testing.F) {
	f.Add([]byte(`{"at":"2026-11-22T00:00:00Z","action":"call"}` + "\n" + `{`))
	f.Add([]byte("\n\n[]\nnull"))
	f.Fuzz(func(t *testing.T, text []byte) {
		lines, err := parseAudit("t")(text, "1795350331410-0")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range lines {
			if _, err := registry.ParseAuditID(e.ID); err != nil || e.Tenant != "t" {
				t.Errorf("%+v: %v", e, err)
			}
		}
	})
}

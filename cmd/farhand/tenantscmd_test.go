package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/farhand/farhand/api/wire"
)

// An amount of money has at most six decimal places. No amount loses a sign.
func TestAmounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, text string
		want       int64 // 0: an error
	}{
		{"calls", "5000", 5000}, {"bytes", "1KiB", 1024}, {"money", "25.50", 25_500_000}, {"money", "3", 3_000_000},
		{"money", "0.000001", 1}, {"money", "0.0000001", 0}, {"money", "-0.5", 0}, {"money", "1.-5", 0},
		{"money", "9223372036854775807", 0}, {"money", ".5", 0}, {"money", "x", 0}, {"calls", "x", 0},
	} {
		got, err := parseAmount(c.kind, c.text)
		if c.want == 0 && err == nil || c.want != 0 && (err != nil || got != c.want) {
			t.Errorf("%s=%s: %d, %v", c.kind, c.text, got, err)
		}
	}
}

// tryOperatorsCommands runs the commands of a fleet's operator, and then those of a tenant's first admin: another key,
// its rotation and the erasure of its user. environ names the store of a running gateway and its URL.
func tryOperatorsCommands(t *testing.T, environ []string) {
	t.Helper()
	as := func(token string, code int, want string, args ...string) string {
		t.Helper()
		got, out, errOut := command(t, append([]string{"FARHAND_TOKEN=" + token}, environ...), args...)
		if got != code || !strings.Contains(out+errOut, want) {
			t.Errorf("%v: exit %d, want %d and %q\n%s%s", args, got, code, want, out, errOut)
		}
		return strings.TrimSpace(out)
	}
	operator := as("", 0, "", "keys", "create", "--store", "--role", "operator", "--name", "fleet")
	first := as(operator, 0, "of tenant acme. It is not shown again", "tenants", "key", "acme", "--name", "first",
		"--expires", "30d")
	const limits = "tenant 100 calls; tenant money 25.500000; identity 1073741824 bytes"
	as(operator, 0, "acme: "+limits, "tenants", "budget", "acme", "--limit", "calls=100,money=25.50", "--each",
		"bytes=1GiB", "--warn", "70")
	as(operator, 0, "tenant 100 calls; tenant money 25.500000", "tenants", "list")
	as(operator, 0, "acme: 0 devices, budget: "+limits, "tenants", "show", "acme")
	var shown wire.TenantDetails
	if err := json.Unmarshal([]byte(as(operator, 0, "{", "tenants", "show", "acme", "--json")), &shown); err != nil ||
		shown.Tenant.Tenant != "acme" || shown.Budget.WarnPercent != 70 || shown.Budget.Tenant.Calls != 100 {
		t.Errorf("%+v, %v", shown, err)
	}
	as(operator, 0, "acme: none", "tenants", "budget", "acme", "--none")
	for want, args := range map[string][]string{
		"has keys, or was used":         {"tenants", "key", "acme"},
		"--limit or --each":             {"tenants", "budget", "acme"},
		`no limit of "phones"`:          {"tenants", "budget", "acme", "--limit", "phones=1"},
		"not an amount above 0":         {"tenants", "budget", "acme", "--each", "calls=0"},
		"at least 1s":                   {"tenants", "key", "globex", "--expires", "1ms"},
		"--user is required":            {"erase"},
		"this credential has: operator": {"erase", "--user", "ann"},
		"wrong number of arguments":     {"tenants", "show"},
		"The role admin is required":    {"keys", "list"},
	} {
		as(operator, exitError, want, args...)
	}
	as(first, exitError, "forbidden", "tenants", "list")

	var key keyRow
	if err := json.Unmarshal([]byte(as(first, 0, "fhk_", "keys", "create", "--name", "ann's", "--user",
		"ann", "--json")),
		&key); err != nil {
		t.Fatal(err)
	}
	second := as(first, 0, "fhk_", "keys", "rotate", key.ID, "--overlap", "1h")
	for _, token := range []string{key.Key, second} {
		as(token, 0, "", "tools")
	}
	var receipt wire.Receipt
	if err := json.Unmarshal([]byte(as(first, 0, "{", "erase", "--user", "ann", "--json")), &receipt); err != nil ||
		receipt.ID == "" || receipt.Erased["keys"] != 1 || len(receipt.Kept) == 0 {
		t.Errorf("%+v, %v", receipt, err)
	}
	eventually(t, waitLimit, "the erased user's key ends, which takes a second at most", func() bool {
		code, _, errOut := command(t, append([]string{"FARHAND_TOKEN=" + second}, environ...), "tools")
		return code == exitError && strings.Contains(errOut, "unauthenticated")
	})
	as(first, 0, "KEPT UNTIL", "erase", "--user", "ann")
}

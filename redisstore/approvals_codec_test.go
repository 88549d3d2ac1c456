package redisstore

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
)

// TestApprovalInTheStore: what pods of the last release have stored must be read, so what is stored may only grow.
func TestApprovalInTheStore(t *testing.T) {
	golden, err := os.ReadFile("testdata/approval.json")
	if err != nil {
		t.Fatal(err)
	}
	want := registry.Approval{
		ID: "aaaaaaaaaaaaaaaa", Tenant: "acme", CallID: "11111111-2222-3333-4444-555555555555", Tool: "snap",
		DefinitionHash: "d1", ArgsDigest: "d2", SessionID: "phone", DeviceID: "d1", DeviceName: "Phone", Pod: "pod-a",
		Arguments: []registry.ArgumentSource{{Pointer: "/to", Value: "eve@example.com", Source: "outside"}},
		Owner:     "ann", Requester: registry.Requester{User: "ann", Credential: "key:1"}, Model: true,
		Conversation: "laptop", Turn: "t1", Rule: "default:outside", Rules: "default:outside mail", Reason: "Why.",
		ExactArgs: true, GrantLimit: time.Hour, Deferred: true,
	}
	text, err := encodeJSON(want)
	if err != nil || string(text) != strings.TrimSpace(string(golden)) {
		t.Errorf("stored as %s (%v), want %s", text, err, golden)
	}
	want.Args = registry.MustJSON(`{"to":"eve@example.com"}`)
	want.CreatedAt, want.ExpiresAt = time.UnixMilli(1_795_350_331_410).UTC(), time.UnixMilli(1_795_350_391_410).UTC()
	want.Verdict = registry.Verdict{
		State: registry.ApprovalAllowed, DecidedBy: "ann", DecidedAt: time.UnixMilli(1_795_350_341_410).UTC(),
		Scope: registry.ScopeAlwaysArgs,
	}
	want.AllowedBy, want.First = "ann", registry.Vote{Person: "user:ann", Voter: []byte("proof")}
	got, err := parseApproval([]string{
		"allowed", "ann", "1795350341410", "always_args", string(golden), "1795350331410", "1795350391410",
		`{"to":"eve@example.com"}`, "ann", "user:ann", "proof",
	})
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read as %+v, %v", got, err)
	}
	for _, fields := range [][]string{
		nil, {"allowed"}, make([]string, approvalFields-1),
		{"", "", "", "", "{", "", "", "", "", "", ""}, {"", "", "", "", "{}", "", "", "{", "", "", ""},
	} {
		if a, err := parseApproval(fields); err == nil {
			t.Errorf("%q was read as %+v", fields, a)
		}
	}
}

// FuzzApproval: whatever is in the store is read without harm, and what was read is stored as it was.
func FuzzApproval(f *testing.F) {
	f.Add("allowed", "ann", "1", "once", `{"id":"a","tenant":"t"}`, "1", "2", `{"a":1}`)
	f.Add("", "", "", "", "null", "-1", "99999999999999999999", "")
	f.Add("pending", "", "x", "", "[]", "", "", "[")
	f.Fuzz(func(t *testing.T, state, by, at, scope, about, created, expires, args string) {
		a, err := parseApproval([]string{state, by, at, scope, about, created, expires, args, "", "", ""})
		if err != nil {
			return
		}
		if string(a.State) != state || a.DecidedBy != by || string(a.Scope) != scope {
			t.Errorf("read as %+v", a)
		}
		text, err := encodeJSON(a)
		if err != nil {
			t.Fatal(err)
		}
		var again registry.Approval
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatal(err)
		}
		again.Verdict, again.Args, again.CreatedAt, again.ExpiresAt = a.Verdict, a.Args, a.CreatedAt, a.ExpiresAt
		if len(a.Arguments) == 0 {
			again.Arguments, a.Arguments = nil, nil
		}
		if !reflect.DeepEqual(again, a) {
			t.Errorf("%+v was read again as %+v", a, again)
		}
	})
}

// One approval that cannot be read hides no others.
func TestADamagedApprovalHidesNoOthers(t *testing.T) {
	t.Parallel()
	s, ctx := storeOn(t, Options{}), t.Context()
	var ids []string
	for range 2 {
		a := registry.Approval{
			ID: registry.NewApprovalID(), Tenant: tenant, CallID: "c", Tool: "snap", Args: registry.MustJSON(`{}`),
		}
		must[registry.Approval](t)(s.CreateApproval(ctx, a, time.Minute, nil))
		ids = append(ids, a.ID)
	}
	pipe := s.conn.Pipeline()
	pipe.Do("HSET", approvalKey(tenant, ids[0]), "d", "{")
	if err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	pending := must[[]registry.Approval](t)(s.PendingApprovals(ctx, tenant))
	if len(pending) != 1 || pending[0].ID != ids[1] {
		t.Errorf("%+v", pending)
	}
}

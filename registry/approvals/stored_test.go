package approvals

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

func golden(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func document(data string, at time.Time) documents.Document {
	return documents.Document{Data: []byte(data), Revision: "r", Created: at, Now: at}
}

// TestApprovalInTheStore: what pods of the last release have stored must be read, so what is stored may only grow.
func TestApprovalInTheStore(t *testing.T) {
	question, stored := golden(t, "approval.json"), golden(t, "state.json")
	want := registry.Approval{
		ID: "aaaaaaaaaaaaaaaa", Tenant: "acme", CallID: "11111111-2222-3333-4444-555555555555", Tool: "snap",
		DefinitionHash: "d1", ArgsDigest: "d2", SessionID: "phone", DeviceID: "d1", DeviceName: "Phone", Pod: "pod-a",
		Arguments: []registry.ArgumentSource{{Pointer: "/to", Value: "eve@example.com", Source: "outside"}},
		Owner:     "ann", Requester: registry.Requester{User: "ann", Credential: "key:1"}, Model: true,
		Conversation: "laptop", Turn: "t1", Rule: "default:outside", Rules: "default:outside mail", Reason: "Why.",
		ExactArgs: true, GrantLimit: time.Hour, Deferred: true,
	}
	text, err := json.Marshal(want)
	if err != nil || string(text) != question {
		t.Errorf("stored as %s (%v), want %s", text, err, question)
	}
	at := time.UnixMilli(1_795_350_331_410).UTC()
	want.Args = registry.MustJSON(`{"to":"eve@example.com"}`)
	want.CreatedAt, want.ExpiresAt = at, at.Add(time.Minute)
	want.Verdict = registry.Verdict{
		State: registry.ApprovalAllowed, DecidedBy: "ann", DecidedAt: time.UnixMilli(1_795_350_341_410).UTC(),
		Scope: registry.ScopeAlwaysArgs,
	}
	want.AllowedBy, want.First = "ann", registry.Vote{Person: "user:ann", Voter: []byte("proof")}
	put := state{
		Verdict: want.Verdict, Life: time.Minute, AllowedBy: want.AllowedBy, First: want.First, Wrong: 2,
	}.put("a", 0)
	if string(put.Text) != stored {
		t.Errorf("stored as %s, want %s", put.Text, stored)
	}
	args := document(`{"to":"eve@example.com"}`, at)
	got, _, err := decode(document(question, at), document(stored, at), args)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read as %+v, %v", got, err)
	}
	for _, bad := range [][3]string{{"{", stored, ""}, {question, "{", ""}, {question, stored, "{"}} {
		a, _, err := decode(document(bad[0], at), document(bad[1], at), document(bad[2], at))
		if err == nil {
			t.Errorf("%q was read as %+v", bad, a)
		}
	}
}

// FuzzApproval: whatever is in the store is read without harm, and what was read is stored as it was.
func FuzzApproval(f *testing.F) {
	f.Add(`{"id":"a","tenant":"t"}`, `{"state":"allowed","decided_by":"ann","life":1}`, `{"a":1}`, int64(1))
	f.Add(`null`, `{}`, ``, int64(-1))
	f.Add(`[]`, `{"state":"pending","first":{"Voter":"eA=="}}`, `[`, int64(1)<<50)
	f.Fuzz(func(t *testing.T, question, stored, args string, ms int64) {
		at := time.UnixMilli(ms).UTC()
		a, current, err := decode(document(question, at), document(stored, at), document(args, at))
		if err != nil {
			return
		}
		text, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		put := current.put(a.ID, 0)
		if len(put.Text) == 0 { // a time that cannot be written
			return
		}
		again, _, err := decode(document(string(text), at), document(string(put.Text), at), document(args, at))
		if err != nil {
			t.Fatal(err)
		}
		again.Args = a.Args
		if len(a.Arguments) == 0 {
			again.Arguments, a.Arguments = nil, nil
		}
		if len(a.First.Voter) == 0 {
			again.First.Voter, a.First.Voter = nil, nil
		}
		if !reflect.DeepEqual(again, a) {
			t.Errorf("%+v was read again as %+v", a, again)
		}
	})
}

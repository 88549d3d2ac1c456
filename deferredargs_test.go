package farhand_test

import (
	"encoding/json"
	"testing"

	"github.com/farhand/farhand"
)

// TestDeferredCallsKeepTheirArguments: an asynchronous call whose arguments have white space, or signs that
// encoding/json escapes, used to be rejected after its approval, because its arguments seemed to have changed.
func TestDeferredCallsKeepTheirArguments(t *testing.T) {
	url := start(t, farhand.Config{Token: adminToken})
	answering(t, url, "s", adminToken, `[{"name":"pay","parameters":{"type":"object"},"security_level":"user_confirm"}]`)
	_, made := send(t, url+"/api/keys", `{"roles":["caller"]}`, adminToken)
	var key struct{ Key string }
	if err := json.Unmarshal([]byte(made), &key); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{
		`{"to":"Ann"}`, `{ "to" : "Ann" }`, `{"to":"<Ann> & Ben"}`, "{\"to\":\"Ann\u2028\\u003c\"}", ``,
	} {
		body := `{"mode":"async","args":` + args + `}`
		if args == "" {
			body = `{"mode":"async"}`
		}
		var asked struct {
			CallID   string `json:"call_id"`
			Approval string `json:"approval_id"`
		}
		_, text := send(t, url+"/api/tools/pay/call", body, key.Key)
		if err := json.Unmarshal([]byte(text), &asked); err != nil || asked.Approval == "" {
			t.Fatal(text)
		}
		send(t, url+"/api/approvals/"+asked.Approval, `{"decision":"allow-once"}`, adminToken)
		call := read[struct {
			State   string
			Problem any
		}](t, url+"/api/calls/"+asked.CallID+"?wait_ms=20000", "", adminToken)
		if call.State != "succeeded" {
			t.Errorf("%s: %+v", args, call)
		}
	}
}

package farhand_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry/memory"
)

// read gets, or posts a body, and decodes the answer.
func read[T any](t *testing.T, url, body, token string) (answer T) {
	t.Helper()
	status, text := send(t, url, body, token)
	if status != http.StatusOK {
		t.Fatalf("%s: %d %s", url, status, text)
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatalf("%s: %v in %s", url, err, text)
	}
	return answer
}

// audited returns the last line of an action, which pods write a moment after the action.
func audited(t *testing.T, url, action string) (line wire.AuditLine) {
	t.Helper()
	testkit.Eventually(t, "a line of "+action, func() bool {
		page := read[wire.AuditPage](t, url+"/api/audit?action="+action, "", adminToken)
		if len(page.Lines) > 0 {
			line = page.Lines[0]
		}
		return len(page.Lines) > 0
	})
	return line
}

// TestPodsAreSeen: any pod shows all pods with what they hold, count and refuse.
func TestPodsAreSeen(t *testing.T) {
	store := memory.New(memory.Options{})
	var urls []string
	for _, id := range []string{"one", "two"} {
		urls = append(urls, start(t, farhand.Config{Token: adminToken, PodID: id},
			farhand.WithStore(store, store.NewBus()), farhand.WithVersion("v9")))
	}
	answering(t, urls[1], "s", adminToken, `[{"name":"look","parameters":{"type":"object"}}]`)
	for range 3 {
		if status, text := send(t, urls[0]+"/api/tools/look/call", `{}`, adminToken); status != http.StatusOK {
			t.Fatal(status, text)
		}
	}
	if status, _ := send(t, urls[0]+"/api/keys", "", "wrong-wrong-wrong-wrong"); status != http.StatusUnauthorized {
		t.Fatal(status)
	}
	pods := read[wire.PodList](t, urls[0]+"/api/pods", "", adminToken).Pods
	if len(pods) != 2 || pods[0].Pod != "one" || !pods[0].Self || pods[1].Self || pods[0].Status == nil ||
		pods[1].Status == nil {
		t.Fatalf("%+v", pods)
	}
	one, two := pods[0].Status, pods[1].Status
	answered := int64(0)
	for _, b := range one.Durations {
		answered += b.Count
	}
	if one.Sessions != 0 || two.Sessions != 1 || one.Calls != 3 || one.CallsFailed != 0 || answered != 3 ||
		one.Refused["unauthenticated"] != 1 || two.Calls != 0 || one.Version != "v9" || one.Draining ||
		one.Redis != nil || one.Memory <= 0 || one.StartedAt > one.At {
		t.Errorf("%+v\n%+v", one, two)
	}
}

// TestPolicyIsShownAndExplained: the operator's admins see the file as it is and which defaults it replaces; the admins
// of other tenants do not, and explain decisions about their own tenant only.
func TestPolicyIsShownAndExplained(t *testing.T) {
	const text = `version: 1
# <script>not run</script>
calls:
  - {id: no-cameras, tenants: acme, deny: camera_*, reason: No cameras.}
tools:
  - {id: default:nodes, names: nodes, approval: always}
`
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := farhand.Config{Token: adminToken, PolicyFile: file}
	cfg.Unconfirmed = true
	url := start(t, cfg)
	p := read[wire.Policy](t, url+"/api/policy", "", adminToken)
	states := map[string]string{}
	for _, d := range p.Defaults {
		states[d.ID] = d.State
		if !strings.HasPrefix(d.Text, "- id: "+d.ID+"\n") {
			t.Errorf("text of %s: %q", d.ID, d.Text)
		}
	}
	if p.File != text || p.Digest == "" || p.Refused != "" || len(states) < 8 ||
		states["default:nodes"] != "replaced" ||
		states["default:confirm-model"] != "off" || states["default:programs"] != "in_force" ||
		!strings.Contains(p.Defaults[0].About, "A model's call") {
		t.Errorf("%+v %v", p, states)
	}
	d := read[wire.PolicyDecision](t, url+"/api/policy/explain",
		`{"tool":"pay","security_level":"user_confirm","roles":["caller"]}`, adminToken)
	if !d.Allowed || len(d.Approvals) != 1 || d.Approvals[0].Rule != "default:confirm-direct" {
		t.Errorf("%+v", d)
	}
	d = read[wire.PolicyDecision](t, url+"/api/policy/explain", `{"tool":"camera_snap"}`, adminToken)
	if !d.Allowed {
		t.Errorf("a rule of another tenant: %+v", d)
	}
	status, made := send(t, url+"/api/keys", `{"roles":["admin"],"tenant":"acme"}`, adminToken)
	var key struct{ Key string }
	if err := json.Unmarshal([]byte(made), &key); err != nil || status != http.StatusCreated {
		t.Fatal(status, made)
	}
	d = read[wire.PolicyDecision](t, url+"/api/policy/explain", `{"tool":"camera_snap"}`, key.Key)
	if d.Allowed || d.Rule != "no-cameras" || d.Reason != "No cameras." {
		t.Errorf("%+v", d)
	}
	for _, path := range []string{"/api/policy", "/api/doctor", "/api/backup"} {
		if status, text := send(t, url+path, "", key.Key); status != http.StatusForbidden {
			t.Errorf("%s for another tenant's admin: %d %s", path, status, text)
		}
	}
	for _, body := range []string{`{}`, `{"tool":"a","roles":["king"]}`, `{"tool":"a","context":"pub"}`,
		`{"tool":"a","effects":["evil"]}`, `{"tool":"a","source":"mars"}`, `{"tool":"a","tenant":"b"}`} {
		if status, text := send(t, url+"/api/policy/explain", body, adminToken); status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
}

// TestDoctorOverHTTP: its findings name what is missing and no secret, and its run is in the audit log.
func TestDoctorOverHTTP(t *testing.T) {
	const secret = "hunter2-hunter2-hunter2"
	cfg := farhand.Config{Token: adminToken}
	cfg.WorkspaceDir, cfg.Models, cfg.ModelKey, cfg.ModelURL = t.TempDir(), []string{"m"}, secret, "http://127.0.0.1:1"
	url := start(t, cfg)
	found := read[wire.Diagnosis](t, url+"/api/doctor", "", adminToken)
	parts := map[string]wire.Finding{}
	for _, f := range found.Findings {
		parts[f.Part] = f
		if strings.Contains(f.Text, secret) || strings.Contains(f.Text, adminToken) {
			t.Errorf("%s shows a secret: %s", f.Part, f.Text)
		}
	}
	if found.Pod == "" || !parts["configuration"].OK || !parts["store"].OK || parts["browser"].Part == "" {
		t.Errorf("%+v", found)
	}
	if line := audited(t, url, "doctor"); line.Outcome != "allowed" {
		t.Errorf("%+v", line)
	}
	if status, text := send(t, url+"/api/backup", "", adminToken); status != http.StatusNotFound {
		t.Errorf("a backup of memory: %d %s", status, text)
	}
}

// TestCommentsOfDeciders: what a person says to a denial reaches the caller and the audit log, as one line.
func TestCommentsOfDeciders(t *testing.T) {
	url := start(t, farhand.Config{Token: adminToken})
	answering(t, url, "s", adminToken, `[{"name":"pay","parameters":{"type":"object"},"security_level":"user_confirm"}]`)
	_, made := send(t, url+"/api/keys", `{"roles":["caller"]}`, adminToken)
	var key struct{ Key string }
	if err := json.Unmarshal([]byte(made), &key); err != nil {
		t.Fatal(err)
	}
	var asked struct {
		CallID   string `json:"call_id"`
		Approval string `json:"approval_id"`
	}
	_, text := send(t, url+"/api/tools/pay/call", `{"mode":"async"}`, key.Key)
	if err := json.Unmarshal([]byte(text), &asked); err != nil || asked.Approval == "" {
		t.Fatal(text)
	}
	approval := url + "/api/approvals/" + asked.Approval
	if status, text := send(t, approval, `{"decision":"deny","comment":"`+strings.Repeat("x", 501)+`"}`,
		adminToken); status != http.StatusBadRequest {
		t.Errorf("a long comment: %d %s", status, text)
	}
	d := read[wire.Decision](t, approval, `{"decision":"deny","comment":"Too much.\nAsk\u202e Ada."}`, adminToken)
	if !d.Decided || d.Comment != "Too much. Ask Ada." {
		t.Errorf("%+v", d)
	}
	call := read[struct{ Problem struct{ Detail string } }](t, url+"/api/calls/"+asked.CallID+"?wait_ms=10000", "",
		adminToken)
	if !strings.Contains(call.Problem.Detail, "The person's comment: Too much. Ask Ada.") {
		t.Errorf("%+v", call)
	}
	if line := audited(t, url, "approval.decide"); !strings.HasSuffix(line.Reason, ": Too much. Ask Ada.") {
		t.Errorf("%+v", line)
	}
}

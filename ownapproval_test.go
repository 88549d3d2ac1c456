package farhand_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
)

// A person who is asked about a call of a device that a tool of the gateway makes has the time of approvals, however
// little the tool has: also where the tool's own call waited for a person, without a pod.
func TestApprovalOfACallOfAToolsOwn(t *testing.T) {
	t.Parallel()
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	text := "version: 1\ntools:\n  - {id: ask, names: [hand, hang], approval: always}\n"
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	url := start(t, farhand.Config{
		Token: adminToken, PolicyFile: policy, CallTimeout: 500 * time.Millisecond, ApprovalTime: 5 * time.Minute,
	}, farhand.WithToolFunc("hand", "Calls the device.", func(ctx context.Context, _ struct{}) (any, error) {
		out, err := agent.CallDevice(ctx, agent.DeviceCall{
			Tool: "hang", Target: registry.Target{SessionID: "held"},
		})
		return out.Result.Output, err
	}))
	calls, _ := heldDevice(t, url)
	asks := makeKey(t, url, `{"roles":["caller"]}`)
	status, answer := send(t, url+"/api/tools/hand/call", `{"mode":"async"}`, asks.Key)
	if status != http.StatusAccepted {
		t.Fatalf("call: %d %s", status, answer)
	}
	for _, tool := range []string{"hand", "hang"} {
		var waiting struct {
			Approvals []struct {
				ID        string
				Tool      string
				CreatedAt time.Time `json:"created_at"`
				ExpiresAt time.Time `json:"expires_at"`
			}
		}
		testkit.Eventually(t, "a person is asked about "+tool, func() bool {
			_, list := send(t, url+"/api/approvals", "", adminToken)
			if err := json.Unmarshal([]byte(list), &waiting); err != nil {
				t.Fatal(err)
			}
			return len(waiting.Approvals) == 1 && waiting.Approvals[0].Tool == tool
		})
		a := waiting.Approvals[0]
		if life := a.ExpiresAt.Sub(a.CreatedAt); life < 5*time.Minute {
			t.Errorf("the person who is asked about %s has %v", tool, life)
		}
		wantMetric(t, url, "farhand_approvals_waiting", func(n float64) bool { return n == 1 })
		wantMetric(t, url, "farhand_approvals_oldest_seconds",
			func(n float64) bool { return n > 0 && n < limit.Seconds() })
		if status, said := send(t, url+"/api/approvals/"+a.ID, `{"decision":"allow-once"}`, adminToken); status != 200 {
			t.Fatalf("allow: %d %s", status, said)
		}
	}
	select {
	case <-calls:
	case <-time.After(limit):
		t.Error("the device was not called")
	}
	for _, name := range []string{"waiting", "oldest_seconds"} {
		wantMetric(t, url, "farhand_approvals_"+name, func(n float64) bool { return n == 0 })
	}
}

// wantMetric waits until a metric of a pod, which is named with its labels, has a value. Some are counted with a delay,
// such as an approval of an asynchronous call that was decided.
func wantMetric(t *testing.T, url, name string, ok func(float64) bool) {
	t.Helper()
	testkit.Eventually(t, "the value of "+name, func() bool {
		_, text := send(t, url+"/metrics", "", adminToken)
		_, after, found := strings.Cut(text, "\n"+name+" ")
		value, _, _ := strings.Cut(after, "\n")
		n, err := strconv.ParseFloat(value, 64)
		return found && err == nil && ok(n)
	})
}

// TestApproversAreNamed: the answer to a call that waits names who may decide it, for a tool of the gateway as for a
// device's: the approvers of the tenant that may use the tool, and no others. A caller that waits reads the names when
// no one has decided.
func TestApproversAreNamed(t *testing.T) {
	t.Parallel()
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	text := "version: 1\ntools:\n  - {id: ask, names: [exec, hang], approval: always}\n"
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := farhand.Config{Token: adminToken, PolicyFile: policy, ApprovalTime: 100 * time.Millisecond}
	cfg.Builtins, cfg.WorkspaceDir, cfg.Sandbox = []string{"exec"}, t.TempDir(), farhand.SandboxNone
	url := start(t, cfg)
	heldDevice(t, url)
	asks := makeKey(t, url, `{"roles":["caller"],"name":"asks"}`)
	for _, key := range []string{
		`{"roles":["approver"],"name":"decides"}`, `{"roles":["approver"],"name":"of another tool","tools":"lamp"}`,
		`{"roles":["caller"],"name":"only calls"}`, `{"roles":["approver"],"name":"elsewhere","tenant":"acme"}`,
	} {
		makeKey(t, url, key)
	}
	for tool, args := range map[string]string{"exec": `{"command":"true"}`, "hang": `{}`} {
		status, raw := send(t, url+"/api/tools/"+tool+"/call", `{"mode":"async","args":`+args+`}`, asks.Key)
		var accepted struct{ Approvers []string }
		if err := json.Unmarshal([]byte(raw), &accepted); err != nil || status != http.StatusAccepted {
			t.Fatalf("%s: %d %s", tool, status, raw)
		}
		if want := []string{"decides", "holders of FARHAND_TOKEN"}; !slices.Equal(accepted.Approvers, want) {
			t.Errorf("%s: who asks is told that %q may decide, want %q", tool, accepted.Approvers, want)
		}
		status, raw = send(t, url+"/api/tools/"+tool+"/call", `{"args":`+args+`}`, asks.Key)
		if status != http.StatusForbidden || !strings.Contains(raw, "Approvers: decides, holders of FARHAND_TOKEN.") {
			t.Errorf("%s: a caller that waits: %d %s", tool, status, raw)
		}
	}
}

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestApprovalsAreSentOut: a service of the hooks file receives waiting calls, with a link to decide them.
func TestApprovalsAreSentOut(t *testing.T) {
	t.Parallel()
	told := make(chan map[string]any, 1)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var message struct{ Data map[string]any }
		if json.NewDecoder(r.Body).Decode(&message) == nil {
			told <- message.Data
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(service.Close)
	path := filepath.Join(t.TempDir(), "hooks.yaml")
	text := fmt.Sprintf("hooks: [{name: pager, url: %q, secret: %s, phase: approval, allow_private: true}]\n",
		service.URL, hookSecret)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	pod := startPod(t, askingAlways(t), "FARHAND_HOOKS_FILE="+path, "FARHAND_PUBLIC_URL=https://g.example")
	connectDevice(t, pod.url, "phone", echoTool())
	status, raw := request(t, http.MethodPost, pod.url+"/api/sessions/phone/tools/echo/call", `{"mode":"async"}`)
	var accepted struct {
		Approval  string `json:"approval_id"`
		Approvers []string
	}
	if err := json.Unmarshal(raw, &accepted); err != nil || status != http.StatusAccepted {
		t.Fatalf("%d %s", status, raw)
	}
	if len(accepted.Approvers) != 1 || accepted.Approvers[0] != "holders of FARHAND_TOKEN" {
		t.Errorf("who asks is told that %q may decide", accepted.Approvers)
	}
	select {
	case data := <-told:
		page := "/console/approvals/" + accepted.Approval
		if data["url"] != "https://g.example/api/approvals/"+accepted.Approval || data["tool"] != "echo" ||
			data["console_url"] != "https://g.example"+page {
			t.Errorf("told %v", data)
		}
		if status, body := request(t, http.MethodGet, pod.url+page, ""); status != http.StatusOK ||
			!strings.Contains(string(body), "<html") {
			t.Errorf("the page for people: %d %s", status, body)
		}
	case <-time.After(waitLimit):
		t.Fatal("the service was told nothing")
	}
	decideAt(t, pod.url, accepted.Approval, "deny")
}

// TestAccountsHaveNames: the audit log says by which key, with its name, from where, by which rule and why a call ran;
// the approval names the key, and so does usage. --expires takes days.
func TestAccountsHaveNames(t *testing.T) {
	t.Parallel()
	pod := startPod(t, askingAlways(t))
	connectDevice(t, pod.url, "phone", echoTool())
	admin := []string{"FARHAND_URL=" + pod.url, "FARHAND_TOKEN=" + fleetToken}
	code, key, errOut := command(t, admin, "keys", "create", "--name", "ci", "--expires", "30d")
	if code != 0 {
		t.Fatal(errOut)
	}
	if code, _, errOut := command(t, admin, "keys", "create", "--expires", "2w"); code == 0 ||
		!strings.Contains(errOut, "write it as 90s, 30m, 24h or 30d") {
		t.Errorf("2w: %d %s", code, errOut)
	}
	ended := make(chan int, 1)
	go func() {
		req := mustRequest(pod.url+"/api/sessions/phone/tools/echo/call", `{"args":{"n":1}}`)
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(key))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			ended <- 0
			return
		}
		_ = resp.Body.Close()
		ended <- resp.StatusCode
	}()
	id := waitingOn(t, pod.url)
	if _, list, _ := command(t, admin, "approve", "list"); !strings.Contains(list, "ci (key:") {
		t.Errorf("the approval does not name the key:\n%s", list)
	}
	decideAt(t, pod.url, id, "allow-once")
	if status := <-ended; status != http.StatusOK {
		t.Fatalf("the call ended with %d", status)
	}
	type line struct {
		Action, Outcome, Rule, Reason string
		Actor                         struct{ Credential, Name, Source string }
	}
	var call line
	eventually(t, waitLimit, "the call is in the audit log", func() bool {
		var page struct{ Lines []line }
		getJSON(t, pod.url+"/api/audit?action=call", &page)
		if len(page.Lines) > 0 {
			call = page.Lines[0]
		}
		return len(page.Lines) == 1
	})
	if !strings.HasPrefix(call.Actor.Credential, "key:") || call.Actor.Name != "ci" ||
		call.Actor.Source != "127.0.0.1" || call.Rule != "ask" || call.Reason != "approved by token" {
		t.Errorf("audited as %+v", call)
	}
	eventually(t, waitLimit, "the key has used something", func() bool {
		var page struct {
			Usage []struct{ User, Key, Tool string }
		}
		getJSON(t, pod.url+"/api/usage?tool=echo", &page)
		return len(page.Usage) == 1 && page.Usage[0].Key == "ci ("+call.Actor.Credential+")"
	})
}

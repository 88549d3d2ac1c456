package main

import (
	"net/http"
	"strings"
	"testing"
)

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

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/ws/client"
)

// askingAlways is a policy by which every call of echo needs an approval, for every caller.
func askingAlways(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	text := "version: 1\ntools:\n  - id: ask\n    names: [echo]\n    approval: always\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return "FARHAND_POLICY_FILE=" + path
}

// countingTool is echo, and counts how often it runs.
func countingTool(runs *atomic.Int32) client.Option {
	return client.WithTool(client.Tool{Name: "echo", Description: "returns its arguments"},
		func(_ context.Context, call client.Call) (any, error) {
			runs.Add(1)
			return string(call.Args), nil
		})
}

// waitingOn waits until one approval waits, and returns its id.
func waitingOn(t *testing.T, url string) (id string) {
	t.Helper()
	eventually(t, waitLimit, "somebody is asked", func() bool {
		var list struct{ Approvals []struct{ ID string } }
		getJSON(t, url+"/api/approvals", &list)
		if len(list.Approvals) == 1 {
			id = list.Approvals[0].ID
		}
		return id != ""
	})
	return id
}

// decideAt decides an approval and returns what it is then.
func decideAt(t *testing.T, url, id, decision string) (state string) {
	t.Helper()
	status, raw := request(t, http.MethodPost, url+"/api/approvals/"+id, `{"decision":"`+decision+`"}`)
	var said struct{ State string }
	if err := json.Unmarshal(raw, &said); err != nil || status != http.StatusOK {
		t.Fatalf("decide: %d %s", status, raw)
	}
	return said.State
}

// TestAnApprovalSurvivesAllPods: an asynchronous call waits for a person, and every pod is killed and replaced before
// the person answers.
func TestAnApprovalSurvivesAllPods(t *testing.T) {
	t.Parallel()
	redis, policy := redistest.Start(t).URL(), askingAlways(t)
	var runs atomic.Int32
	pods := startFleet(t, 2, redis, policy)
	disconnect := connectDevice(t, pods[0].url, "phone", countingTool(&runs))
	status, raw := request(t, http.MethodPost, pods[1].url+"/api/sessions/phone/tools/echo/call",
		`{"args":{"n":1},"mode":"async"}`)
	var accepted struct {
		CallID   string `json:"call_id"`
		Approval string `json:"approval_id"`
	}
	if err := json.Unmarshal(raw, &accepted); err != nil || status != http.StatusAccepted || accepted.Approval == "" {
		t.Fatalf("%d %s", status, raw)
	}
	for _, p := range pods {
		p.signal(syscall.SIGKILL)
		p.exit(t)
	}
	disconnect()
	pods = startFleet(t, 2, redis, policy)
	connectDevice(t, pods[0].url, "phone", countingTool(&runs))
	if id := waitingOn(t, pods[1].url); id != accepted.Approval || runs.Load() != 0 {
		t.Fatalf("waiting %s, not %s; %d runs", id, accepted.Approval, runs.Load())
	}
	if state := decideAt(t, pods[1].url, accepted.Approval, "allow-once"); state != "allowed" {
		t.Fatalf("state %s", state)
	}
	var record struct{ State, Output string }
	eventually(t, waitLimit, "the call has run", func() bool {
		getJSON(t, pods[0].url+"/api/calls/"+accepted.CallID+"?wait_ms=5000", &record)
		return record.State == "succeeded"
	})
	if record.Output != `{"n":1}` || runs.Load() != 1 {
		t.Errorf("%+v after %d runs", record, runs.Load())
	}
}

// TestAPodIsKilledWhileItsCallWaits: nothing runs for a caller that is gone.
func TestAPodIsKilledWhileItsCallWaits(t *testing.T) {
	t.Parallel()
	var runs atomic.Int32
	pods := startFleet(t, 2, redistest.Start(t).URL(), askingAlways(t))
	connectDevice(t, pods[0].url, "phone", countingTool(&runs))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		resp, err := http.DefaultClient.Do(mustRequest(pods[1].url+"/api/sessions/phone/tools/echo/call", `{}`))
		if err == nil {
			resp.Body.Close()
		}
	}()
	id := waitingOn(t, pods[0].url)
	pods[1].signal(syscall.SIGKILL)
	pods[1].exit(t)
	<-ended
	decideAt(t, pods[0].url, id, "allow-once")
	// A later call is asked anew.
	a := callTool(t, pods[0].url, "/api/sessions/phone/tools/echo/call", `{"timeout_ms":1200}`)
	if a.Code != "approval_denied" || runs.Load() != 0 {
		t.Errorf("%+v, %d runs", a, runs.Load())
	}
}

func mustRequest(url, body string) *http.Request {
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Authorization", "Bearer "+fleetToken)
	req.Header.Set("Content-Type", "application/json")
	return req
}

// TestAConversationWaitsForAPerson: the turn says that it waits, a person decides on another pod, and the model hears
// what came of it.
func TestAConversationWaitsForAPerson(t *testing.T) {
	t.Parallel()
	model := openStage(t, providerOpenAI)
	pods := startFleet(t, 2, redistest.Start(t).URL(), append(model.settings(), askingAlways(t))...)
	var runs atomic.Int32
	connectDevice(t, pods[0].url, "phone", countingTool(&runs))
	for i, c := range []struct {
		decision, state string
		runs            int32
		heard           string
	}{
		{"deny", "denied", 0, "A person denied this call"},
		{"allow-once", "allowed", 1, `{"n":1}`},
	} {
		play := model.script(t, "asks", calling(echoing(`{"n":1}`)), saying("so be it"))
		events := make(chan []chatEvent, 1)
		go func() {
			said, _ := turnOverHTTP(t, pods[0].url, "phone", tag("asks")+" do it")
			events <- said
		}()
		id := waitingOn(t, pods[1].url)
		if state := decideAt(t, pods[1].url, id, c.decision); state != c.state {
			t.Fatalf("state %s", state)
		}
		said := <-events
		asked, decided := eventsOf(said, "approval_request"), eventsOf(said, "approval_decided")
		if len(asked) != 1 || len(decided) != 1 || len(eventsOf(said, "done")) != 1 || runs.Load() != c.runs {
			t.Errorf("%s: asked %v, decided %v, %d runs", c.decision, asked, decided, runs.Load())
		}
		if _, heard := lastOf(play.asked(2*i + 1)); !strings.Contains(heard, c.heard) {
			t.Errorf("%s: the model heard %s", c.decision, heard)
		}
	}
}

// TestApproveCommand lists, shows, allows, grants and revokes from the terminal, and follows what comes.
func TestApproveCommand(t *testing.T) {
	t.Parallel()
	pod := startPod(t, askingAlways(t))
	connectDevice(t, pod.url, "phone", echoTool())
	approve := func(args ...string) string {
		t.Helper()
		var out bytes.Buffer
		a := application{
			in: strings.NewReader(""), out: &out, err: &out,
			environ: []string{"FARHAND_URL=" + pod.url, "FARHAND_TOKEN=" + fleetToken},
			args:    append([]string{"approve"}, args...),
		}
		if code := a.run(t.Context()); code != 0 {
			t.Fatalf("approve %v: %d %s", args, code, out.String())
		}
		return out.String()
	}
	follower := start(t, []string{"FARHAND_URL=" + pod.url, "FARHAND_TOKEN=" + fleetToken}, farhandBinary,
		"approve", "list", "--wait")
	call := func(n string) <-chan answer {
		ended := make(chan answer, 1)
		go func() {
			ended <- callTool(t, pod.url, "/api/sessions/phone/tools/echo/call", `{"args":{"text":"a\u202eb`+n+`"}}`)
		}()
		return ended
	}
	ended := call("1")
	id := waitingOn(t, pod.url)
	if list := approve("list"); !strings.Contains(list, id) || !strings.Contains(list, "phone") {
		t.Errorf("list: %s", list)
	}
	if shown := approve("show", id); !strings.Contains(shown, `a\u202eb1`) || !strings.Contains(shown, "hidden") ||
		!strings.Contains(shown, "farhand approve allow "+id) {
		t.Errorf("show: %s", shown)
	}
	eventually(t, waitLimit, "the follower shows it", func() bool {
		return strings.Contains(follower.out.String(), id)
	})
	said := approve("allow", id, "--always", "--for", "1h")
	if a := <-ended; !a.Success || !strings.Contains(said, "granted until") {
		t.Errorf("allow: %s; %+v", said, a)
	}
	if again := approve("deny", id); !strings.Contains(again, "allowed") ||
		!strings.Contains(again, "already decided") {
		t.Errorf("deny: %s", again)
	}
	if a := <-call("1"); !a.Success { // as granted
		t.Errorf("%+v", a)
	}
	grants := strings.Fields(strings.SplitN(approve("grants"), "\n", 2)[1])
	approve("revoke", grants[0])
	ended = call("1")
	approve("deny", waitingOn(t, pod.url))
	if a := <-ended; a.Code != "approval_denied" {
		t.Errorf("%+v", a)
	}
	eventually(t, waitLimit, "the follower shows decisions", func() bool {
		return strings.Contains(follower.out.String(), "denied by")
	})
}

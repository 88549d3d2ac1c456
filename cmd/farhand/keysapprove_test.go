package main

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// TestKeysAndApprovalsAtATerminal: an admin makes a key, a program with it asks for a call, and the admin decides.
func TestKeysAndApprovalsAtATerminal(t *testing.T) {
	t.Parallel()
	p := startPod(t, askingAlways(t))
	admin := []string{"FARHAND_URL=" + p.url, "FARHAND_TOKEN=" + fleetToken}
	run := func(args ...string) string {
		t.Helper()
		code, out, errOut := command(t, admin, args...)
		if code != 0 {
			t.Fatalf("%v: exit %d\n%s%s", args, code, out, errOut)
		}
		return out
	}

	key := strings.TrimSpace(run("keys", "create", "--name", "ci", "--user", "ann", "--expires", "1h"))
	if !strings.HasPrefix(key, "fhk_") || strings.ContainsAny(key, " \n") {
		t.Fatalf("not only the key is printed: %q", key)
	}
	var other keyRow
	made := run("keys", "create", "--json", "--role", "approver", "--tools", "echo torch")
	if err := json.Unmarshal([]byte(made), &other); err != nil || other.Tools != "echo torch" || other.Key == "" {
		t.Fatalf("%v: %s", err, made)
	}
	list := run("keys", "list")
	if !strings.Contains(list, other.ID) || strings.Contains(list, key) || strings.Contains(list, other.Key) {
		t.Errorf("the list:\n%s", list)
	}
	if mine := run("keys", "list", "--json", "--user", "ann"); strings.Contains(mine, other.ID) {
		t.Errorf("ann's keys:\n%s", mine)
	}

	var runs atomic.Int32
	connectDevice(t, p.url, "phone", countingTool(&runs))
	ann := []string{"FARHAND_URL=" + p.url, "FARHAND_TOKEN=" + key}
	waitingFor := func() string { // asks as ann does, and returns the approval's id
		req := mustRequest(p.url+"/api/sessions/phone/tools/echo/call", `{"mode":"async"}`)
		req.Header.Set("Authorization", "Bearer "+key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return waitingOn(t, p.url)
	}

	id := waitingFor()
	if code, _, errOut := command(t, ann, "approve", "allow", id); code == 0 || !strings.Contains(errOut, "forbidden") {
		t.Errorf("a caller decides: exit %d, %s", code, errOut)
	}
	if code, _, errOut := command(t, admin, "approve", "allow", id, "--for", "1h"); code == 0 {
		t.Errorf("--for without --always: %s", errOut)
	}
	for _, c := range []struct{ args, want []string }{
		{[]string{"list"}, []string{id, "echo", "phone", "ann"}},
		{[]string{"list", "--json"}, []string{`"id":"` + id}},
		{[]string{"show", id}, []string{"echo", "asked by ann", "args: {}", "farhand approve allow " + id}},
	} {
		out := run(append([]string{"approve"}, c.args...)...)
		for _, want := range c.want {
			if !strings.Contains(strings.ReplaceAll(out, `": "`, `":"`), want) {
				t.Errorf("%v: no %q in\n%s", c.args, want, out)
			}
		}
	}
	watch, stop := watchApprovals(t, admin)
	eventually(t, waitLimit, "who watches sees what waits", func() bool { return strings.Contains(watch.String(), id) })
	allowed := run("approve", "allow", id, "--always", "--any-args", "--for", "24h")
	eventually(t, waitLimit, "who watches hears the decision", func() bool {
		return strings.Contains(watch.String(), id+" echo: allowed")
	})
	eventually(t, waitLimit, "the call ran", func() bool { return runs.Load() == 1 })
	stop()

	grants := run("approve", "grants")
	_, after, _ := strings.Cut(allowed, "farhand approve revoke ")
	grant, _, _ := strings.Cut(after, "\n")
	if grant == "" || !strings.Contains(grants, grant) || !strings.Contains(grants, "any") {
		t.Fatalf("%s\n%s", allowed, grants)
	}
	if code, out, errOut := command(t, ann, "call", "echo"); code != 0 {
		t.Errorf("a granted call: exit %d\n%s%s", code, out, errOut)
	}
	run("approve", "revoke", grant)
	if out := run("approve", "deny", waitingFor()); !strings.Contains(out, "denied") {
		t.Errorf("denied: %s", out)
	}

	run("keys", "revoke", other.ID)
	run("keys", "revoke", "--user", "ann")
	if code, _, _ := command(t, admin, "keys", "revoke"); code == 0 {
		t.Error("nothing was named, and something revoked")
	}
	eventually(t, waitLimit, "ann's key is dead", func() bool {
		code, _, errOut := command(t, ann, "tools")
		return code != 0 && strings.Contains(errOut, "unauthenticated")
	})
}

// watchApprovals runs `farhand approve list --wait` until stop is called.
func watchApprovals(t *testing.T, environ []string) (out *lockedBuffer, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out = &lockedBuffer{}
	app := application{
		in: strings.NewReader(""), out: out, err: out, environ: environ, args: []string{"approve", "list", "--wait"},
	}
	ended := make(chan int, 1)
	go func() { ended <- app.run(ctx) }()
	return out, func() {
		cancel()
		if code := <-ended; code != 0 {
			t.Errorf("watching ends with %d\n%s", code, out.String())
		}
	}
}

package main

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/farhand/farhand/redisstore/redistest"
)

// TestChatShowsWhatWaits: `farhand chat` shows that a call waits for a person, for whom and how to decide, and asks its
// user if that may decide. Who may not is not asked; whatever they type decides nothing.
func TestChatShowsWhatWaits(t *testing.T) {
	t.Parallel()
	model := openStage(t, providerOpenAI)
	pod := startFleet(t, 1, redistest.Start(t).URL(), append(model.settings(), askingAlways(t))...)[0]
	var runs atomic.Int32
	connectDevice(t, pod.url, "phone", countingTool(&runs))
	admin := []string{"FARHAND_URL=" + pod.url, "FARHAND_TOKEN=" + fleetToken}
	makeKey := func(args ...string) string {
		t.Helper()
		code, out, errOut := command(t, admin, append([]string{"keys", "create"}, args...)...)
		if code != 0 {
			t.Fatalf("%s%s", out, errOut)
		}
		return strings.TrimSpace(out)
	}
	caller := makeKey("--name", "kiosk", "--role", "caller")
	makeKey("--name", "front desk", "--role", "approver")
	both := makeKey("--name", "boss", "--role", "caller,approver")
	for _, c := range []struct {
		name, key, types string
		asked            bool
		runs             int32
	}{
		{"the token says yes", fleetToken, "what?\ny\n", true, 1},
		{"an approver says no", both, "n\n", true, 0},
		{"a caller", caller, "y\ny\n", false, 0},
		{"an approver says nothing", both, "", true, 0},
	} {
		runs.Store(0)
		model.script(t, "asks", calling(echoing(`{"n":1}`)), saying("so be it"))
		out := &lockedBuffer{}
		app := application{
			in: strings.NewReader(c.types), out: out, err: out, args: []string{"chat", tag("asks"), "do it"},
			environ: []string{"FARHAND_URL=" + pod.url, "FARHAND_TOKEN=" + c.key},
		}
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		ended := make(chan int, 1)
		go func() { ended <- app.run(ctx) }()
		answers := strings.Contains(c.types, "\n") && c.asked
		if !answers {
			id := waitingOn(t, pod.url)
			eventually(t, waitLimit, "the chat says who may decide", func() bool {
				return strings.Contains(out.String(), "farhand approve allow "+id)
			})
			if runs.Load() != 0 {
				t.Errorf("%s: it ran", c.name)
			}
			decideAt(t, pod.url, id, "deny")
		}
		if code := <-ended; code != 0 {
			t.Errorf("%s: exit %d", c.name, code)
		}
		cancel()
		said := out.String()
		for _, want := range []string{"? echo waits for an approval: ", "(rule ask)", `"n": 1`, "so be it"} {
			if !strings.Contains(said, want) {
				t.Errorf("%s: no %q in\n%s", c.name, want, said)
			}
		}
		if strings.Contains(said, "y: once") != c.asked || runs.Load() != c.runs {
			t.Errorf("%s: %d runs\n%s", c.name, runs.Load(), said)
		}
		if !answers && !strings.Contains(said, "who may decide: boss, front desk, whoever has FARHAND_TOKEN") &&
			!strings.Contains(said, "who may decide: front desk, boss, whoever has FARHAND_TOKEN") {
			t.Errorf("%s: not said who may decide\n%s", c.name, said)
		}
	}
}

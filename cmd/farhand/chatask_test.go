package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
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
		{"the token says yes", fleetToken, "what?\ny 1\n", true, 1},
		{"an approver says no", both, "n 1\n", true, 0},
		{"a caller", caller, "y\ny\n", false, 0},
		{"an approver says nothing", both, "", true, 0},
	} {
		runs.Store(0)
		model.script(t, "asks", calling(echoing(`{"n":1}`)), saying("so be it"))
		out := &lockedBuffer{}
		app := application{out: out, err: out}
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		o := chatOptions{session: "phone", remote: remote{server: pod.url, token: c.key}}
		lines := make(chan string)
		user := &typist{begin: func() <-chan string { return lines }}
		if c.types == "" {
			close(lines)
		}
		ended := make(chan error, 1)
		go func() { ended <- app.chatTurn(ctx, tag("asks")+" do it", o, user) }()
		answers := c.types != "" && c.asked
		if answers {
			eventually(t, waitLimit, "the user is asked", func() bool {
				return strings.Contains(out.String(), "y 1: once")
			})
			for line := range strings.Lines(c.types) {
				lines <- line
			}
		}
		if !answers {
			id := waitingOn(t, pod.url)
			eventually(t, waitLimit, "the chat names the approvers", func() bool {
				return strings.Contains(out.String(), "farhand approve allow "+id)
			})
			if runs.Load() != 0 {
				t.Errorf("%s: it ran", c.name)
			}
			decideAt(t, pod.url, id, "deny")
		}
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		cancel()
		said := out.String()
		for _, want := range []string{"? echo waits for approval: ", "(rule ask)", `"n": 1`, "so be it"} {
			if !strings.Contains(said, want) {
				t.Errorf("%s: no %q in\n%s", c.name, want, said)
			}
		}
		if strings.Contains(said, "y 1: once") != c.asked || runs.Load() != c.runs {
			t.Errorf("%s: %d runs\n%s", c.name, runs.Load(), said)
		}
		if !answers && !strings.Contains(said, "approvers: boss, front desk, holders of FARHAND_TOKEN") &&
			!strings.Contains(said, "approvers: front desk, boss, holders of FARHAND_TOKEN") {
			t.Errorf("%s: no approvers\n%s", c.name, said)
		}
	}
}

// waitingCall is the event of a call that waits for the user's approval.
func waitingCall(id string) string {
	return fmt.Sprintf(`{"type":"approval_request","id":%q,"tool":"echo","state":"pending","may_decide":true,`+
		`"args_text":"{}","expires_at":"2999-01-01T00:00:00Z"}`, id)
}

// TestChatTakesAnAnswerForItsQuestionOnly: what was typed before a question was put, or for another one that was
// decided elsewhere meanwhile, decides nothing. What was typed before is the next message.
func TestChatTakesAnAnswerForItsQuestionOnly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		ahead  []string
		events []string
		prompt string // the last question's
		types  []string
		want   string
	}{
		{"the first", nil, []string{waitingCall("a1")}, "y: once, n: no", []string{"y"}, "a1 allow-once"},
		{"typed ahead", []string{"yes", "and then?"}, []string{waitingCall("a1")}, "y 1: once, n 1: no",
			[]string{"y", "N  1"}, "a1 deny"},
		{"decided elsewhere", nil, []string{waitingCall("a1"), waitingCall("a2"),
			`{"type":"approval_decided","id":"a1","tool":"echo","state":"denied"}`}, "y 2: once, n 2: no",
			[]string{"y", "y 1", "yes 2"}, "a2 allow-once"},
	} {
		t.Run(c.name, func(t *testing.T) {
			over := make(chan struct{})
			g := newTalker(t, nil, func(w http.ResponseWriter, _ *http.Request, _ string) {
				tell(w, c.events...)
				<-over
				tell(w, `{"type":"done"}`)
			})
			defer g.Close()
			lines, out := make(chan string, 8), &lockedBuffer{}
			for _, line := range c.ahead {
				lines <- line
			}
			user := &typist{lines: lines}
			app := application{out: io.Discard, err: out}
			o := chatOptions{session: "laptop", remote: remote{server: g.URL, token: fleetToken}}
			ended := make(chan error, 1)
			go func() { ended <- app.chatTurn(t.Context(), "hi", o, user) }()
			eventually(t, waitLimit, "the question is put", func() bool {
				return strings.Contains(out.String(), c.prompt)
			})
			for _, line := range c.types {
				lines <- line
			}
			got := receive(t, "a decision", g.decided)
			close(over)
			if err := receive(t, "the end", ended); err != nil || got != c.want || len(g.decided) != 0 {
				t.Errorf("%v, decided %q and %d more, want %q\n%s", err, got, len(g.decided), c.want, out.String())
			}
			if !slices.Equal(user.ahead, c.ahead) {
				t.Errorf("messages %q, want %q", user.ahead, c.ahead)
			}
		})
	}
}

// TestChatAsksAtATerminalOnly: lines of a pipe are left to what they are for, also when there is one message.
func TestChatAsksAtATerminalOnly(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	g := newTalker(t, []string{"laptop"}, func(w http.ResponseWriter, _ *http.Request, _ string) {
		tell(w, waitingCall("a1"))
		<-over
		tell(w, `{"type":"done"}`)
	})
	in, out := strings.NewReader("y\ny 1\n"), &lockedBuffer{}
	before := in.Len()
	app := application{in: in, out: out, err: out, environ: g.environ(), args: []string{"chat", "hi"}}
	ended := make(chan int, 1)
	go func() { ended <- app.run(t.Context()) }()
	eventually(t, waitLimit, "the chat says how to decide, or decides", func() bool {
		return strings.Contains(out.String(), "farhand approve allow a1") || len(g.decided) > 0
	})
	close(over)
	if code := receive(t, "the end", ended); code != 0 || len(g.decided) != 0 || in.Len() != before {
		t.Errorf("exit %d, %d decisions, %d of %d bytes left\n%s", code, len(g.decided), in.Len(), before, out.String())
	}
	terminal, err := os.Open("/dev/zero") // a character device, but not the null device
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = terminal.Close() }()
	user := &typist{}
	if app = (application{in: terminal, err: terminal}); app.userOf(user) != user {
		t.Error("no user at a terminal")
	}
}

// Messages that were typed before a question come before those typed after it.
func TestChatKeepsWhatWasTypedAhead(t *testing.T) {
	t.Parallel()
	lines := make(chan string, 2)
	lines <- "last"
	close(lines)
	user := &typist{lines: lines, ahead: []string{"first", "second"}}
	for _, want := range []string{"first", "second", "last"} {
		if line, more, err := user.message(nil); line != want || !more || err != nil {
			t.Errorf("%q, %v, %v; want %q", line, more, err, want)
		}
	}
	if _, more, err := user.message(nil); more || err != nil {
		t.Errorf("%v, %v at the end", more, err)
	}
}

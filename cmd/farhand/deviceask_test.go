package main

import (
	"context"
	"strings"
	"testing"

	"github.com/farhand/farhand/ws/client"
)

// screen is what was written on a terminal, piece by piece.
type screen chan string

func (s screen) Write(text []byte) (int, error) {
	s <- string(text)
	return len(text), nil
}

func TestAskedOnTheTerminal(t *testing.T) {
	t.Parallel()
	question := client.Question{
		ID: "aaaa", Tool: "snap\x1b[2J", Text: "{\n  \"n\": 1\n}", Reason: "Why.", Remarks: []string{"hidden"},
	}
	for typed, want := range map[string]client.Decision{
		"y": client.AllowOnce, " Always ": client.AllowAlways, "no": client.Deny, "what?\n\nn": client.Deny, "": "",
	} {
		out, lines := make(screen, 8), make(chan string)
		decided := make(chan client.Decision, 1)
		go func() { decided <- newTerminalApprover(out, lines).decide(t.Context(), question) }()
		shown := <-out
		if typed != "" {
			for line := range strings.SplitSeq(typed, "\n") {
				lines <- line
			}
		}
		close(lines)
		if got := <-decided; got != want {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
		if !strings.Contains(shown, "  args: {\n    \"n\": 1\n  }\n") ||
			!strings.Contains(shown, "WARNING: hidden") || strings.Contains(shown, "\x1b") {
			t.Errorf("shown %q", shown)
		}
	}
}

// What was typed before a question answers nothing, and a question that needs no answer gets none.
func TestOnlyAnswersCount(t *testing.T) {
	t.Parallel()
	lines := make(chan string, 2)
	lines <- "y"
	lines <- "y"
	ctx, end := context.WithCancel(t.Context())
	terminal := newTerminalApprover(make(screen, 8), lines)
	if early, more := terminal.forget(); !early || !more || len(lines) != 0 {
		t.Error("what was typed early counts")
	}
	end()
	if got := terminal.decide(ctx, client.Question{Tool: "snap"}); got != "" {
		t.Errorf("decided %q", got)
	}
	close(lines)
	if got := terminal.decide(t.Context(), client.Question{Tool: "snap"}); got != "" {
		t.Errorf("decided %q", got)
	}
}

// What was typed too late for a question that was withdrawn, or too early, is no answer to the next one.
func TestAnswersNameTheirQuestion(t *testing.T) {
	t.Parallel()
	out, lines := make(screen, 16), make(chan string)
	terminal := newTerminalApprover(out, lines)
	ask := func(ctx context.Context, shows string, act func()) client.Decision {
		t.Helper()
		decided := make(chan client.Decision, 1)
		go func() { decided <- terminal.decide(ctx, client.Question{Tool: "snap"}) }()
		if shown := <-out; !strings.Contains(shown, shows) {
			t.Errorf("shown %q", shown)
		}
		act()
		return <-decided
	}
	ctx, withdraw := context.WithCancel(t.Context())
	if got := ask(ctx, "\ny: once, a: always with these arguments, n: no? ", withdraw); got != "" {
		t.Errorf("the first: %q", got)
	}
	<-out
	got := ask(t.Context(), "y 2: once", func() {
		for _, line := range []string{"y", "yes 1"} {
			lines <- line
			if said := <-out; said != "y 2, a 2 or n 2? " {
				t.Errorf("said %q", said)
			}
		}
		lines <- " Y  2 "
	})
	if got != client.AllowOnce {
		t.Errorf("the second: %q", got)
	}
	if got := ask(t.Context(), "\ny: once", func() { lines <- "n" }); got != client.Deny {
		t.Errorf("the third: %q", got)
	}
}

// A command runs only after a plain yes, and what is shown of it is what would run.
func TestCommandsAreConfirmed(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]bool{
		"y": true, " YES ": true, "n": false, "a\n\nno": false, "what?\ny": true, "": false,
	} {
		out, lines := make(screen, 8), make(chan string)
		decided := make(chan bool, 1)
		go func() { decided <- newTerminalApprover(out, lines).confirm(t.Context(), "rm -r \x1b[2Jx\necho y") }()
		shown := <-out
		if typed != "" {
			for line := range strings.SplitSeq(typed, "\n") {
				lines <- line
			}
		}
		close(lines)
		if got := <-decided; got != want {
			t.Errorf("%q: %t", typed, got)
		}
		if !strings.Contains(shown, "\n  rm -r \ufffd[2Jx\n  echo y\n") || strings.Contains(shown, "\x1b") {
			t.Errorf("shown %q", shown)
		}
	}
	ctx, end := context.WithCancel(t.Context())
	end()
	if newTerminalApprover(make(screen, 8), make(chan string)).confirm(ctx, "id") {
		t.Error("a command whose call has ended may run")
	}
}

func TestLocations(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{
		"48.2083,16.3731": true, " -90 , 180 ": true, "": true,
		"91,0": false, "0,181": false, "NaN,0": false, "1": false,
		"a,b": false, "1,2,3": false,
	} {
		if _, err := parseLocation(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

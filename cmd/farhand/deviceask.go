package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/farhand/farhand/ws/client"
)

// terminalApprover asks whoever sits at the terminal, one question at a time.
type terminalApprover struct {
	out   io.Writer
	lines <-chan string
	turn  chan struct{} // capacity 1: whoever asks has put a token in
}

func newTerminalApprover(out io.Writer, lines <-chan string) *terminalApprover {
	return &terminalApprover{out, lines, make(chan struct{}, 1)}
}

// decide is a client.Approver.
func (t *terminalApprover) decide(ctx context.Context, q client.Question) client.Decision {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return ""
	}
	if !t.forget() {
		return ""
	}
	t.show(q)
	for {
		select {
		case line, more := <-t.lines:
			if !more {
				return "" // people decide elsewhere
			}
			switch strings.ToLower(strings.TrimSpace(line)) {
			case "y", "yes":
				return client.AllowOnce
			case "a", "always":
				return client.AllowAlways
			case "n", "no":
				return client.Deny
			}
			fmt.Fprint(t.out, "y, a or n? ")
		case <-ctx.Done():
			fmt.Fprintf(t.out, "\nno answer needed any more: %s\n", printable(context.Cause(ctx).Error()))
			return ""
		}
	}
}

// confirm asks whether a command may run here. It is denied when nobody can answer any more.
func (t *terminalApprover) confirm(ctx context.Context, command string) bool {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return false
	}
	if !t.forget() {
		return false
	}
	fmt.Fprintf(t.out, "\nMay this command run here?\n  %s\ny: once, n: no? ",
		strings.ReplaceAll(printable(command), "\n", "\n  "))
	for {
		select {
		case line, more := <-t.lines:
			switch answer := strings.ToLower(strings.TrimSpace(line)); {
			case !more || answer == "n" || answer == "no":
				return false
			case answer == "y" || answer == "yes":
				return true
			}
			fmt.Fprint(t.out, "y or n? ")
		case <-ctx.Done():
			fmt.Fprintf(t.out, "\nno answer needed any more: %s\n", printable(context.Cause(ctx).Error()))
			return false
		}
	}
}

// forget drops what was typed before anything was asked: it answers nothing. It reports false when nothing more will
// be typed.
func (t *terminalApprover) forget() bool {
	for {
		select {
		case _, more := <-t.lines:
			if !more {
				return false
			}
		default:
			return true
		}
	}
}

func (t *terminalApprover) show(q client.Question) {
	var b strings.Builder
	fmt.Fprintf(&b, "\nMay %s run here?  (%s)\n  why: %s\n  args: %s\n", q.Tool, q.ID, q.Reason,
		strings.ReplaceAll(q.Text, "\n", "\n  "))
	if len(q.Remarks) > 0 {
		fmt.Fprintf(&b, "  LOOK TWICE: %s\n", strings.Join(q.Remarks, ", "))
	}
	b.WriteString("y: once, a: always with these arguments, n: no? ")
	fmt.Fprint(t.out, printable(b.String()))
}

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

	asked     int  // questions
	withdrawn bool // the last one was, so that an answer to it may still come
}

func newTerminalApprover(out io.Writer, lines <-chan string) *terminalApprover {
	return &terminalApprover{out: out, lines: lines, turn: make(chan struct{}, 1)}
}

// decide is a client.Approver.
func (t *terminalApprover) decide(ctx context.Context, q client.Question) client.Decision {
	decision := ask(ctx, t, questionText(q), []reply[client.Decision]{
		{"y", "yes", "once", client.AllowOnce},
		{"a", "always", "always with these arguments", client.AllowAlways},
		{"n", "no", "no", client.Deny},
	})
	return decision // empty: people decide elsewhere
}

// confirm asks whether a command may run here. It is denied when nobody can answer any more.
func (t *terminalApprover) confirm(ctx context.Context, command string) bool {
	text := "\nMay this command run here?\n  " + strings.ReplaceAll(printable(command), "\n", "\n  ") + "\n"
	return ask(ctx, t, text, []reply[bool]{{"y", "yes", "once", true}, {"n", "no", "no", false}})
}

// reply is one that a question can have.
type reply[T any] struct {
	key, word string
	means     string
	decision  T
}

// ask puts a question when it is its turn, and waits for an answer to it. The decision is the zero value when none
// comes before ctx ends, or nothing more will be typed. What was typed for something else answers nothing: after lines
// that came early, or a question that was withdrawn, an answer names the number of its question.
func ask[T any](ctx context.Context, t *terminalApprover, text string, answers []reply[T]) (decision T) {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return decision
	}
	early, more := t.forget()
	if !more {
		return decision
	}
	t.asked++
	number := ""
	if early || t.withdrawn {
		number = fmt.Sprintf(" %d", t.asked)
	}
	t.withdrawn = false
	var means, keys []string
	for _, a := range answers {
		keys, means = append(keys, a.key+number), append(means, a.key+number+": "+a.means)
	}
	fmt.Fprint(t.out, text+strings.Join(means, ", ")+"? ")
	for {
		select {
		case line, more := <-t.lines:
			if !more {
				return decision
			}
			line = strings.ToLower(strings.Join(strings.Fields(line), " "))
			for _, a := range answers {
				if line == a.key+number || line == a.word+number {
					return a.decision
				}
			}
			last := len(keys) - 1
			fmt.Fprintf(t.out, "%s or %s? ", strings.Join(keys[:last], ", "), keys[last])
		case <-ctx.Done():
			t.withdrawn = true
			fmt.Fprintf(t.out, "\nno answer needed any more: %s\n", printable(context.Cause(ctx).Error()))
			return decision
		}
	}
}

// forget drops what was typed before anything was asked: it answers nothing. It reports whether there was any, and
// whether more may be typed.
func (t *terminalApprover) forget() (early, more bool) {
	for {
		select {
		case _, more := <-t.lines:
			if !more {
				return early, false
			}
			early = true
		default:
			return early, true
		}
	}
}

// questionText shows a call as far as a terminal may.
func questionText(q client.Question) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nMay %s run here?  (%s)\n  why: %s\n  args: %s\n", q.Tool, q.ID, q.Reason,
		strings.ReplaceAll(q.Text, "\n", "\n  "))
	if len(q.Remarks) > 0 {
		fmt.Fprintf(&b, "  LOOK TWICE: %s\n", strings.Join(q.Remarks, ", "))
	}
	return printable(b.String())
}

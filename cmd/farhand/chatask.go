package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
)

// typist is the user at a terminal. Some of their lines are messages, others answer questions. It is not safe for
// concurrent use.
type typist struct {
	lines <-chan string        // nil: nothing was read yet
	begin func() <-chan string // begins to read if nothing was read yet
	ahead []string             // messages: lines that were read before a question was put
	asked int                  // questions that were put
}

// ask puts a question. Lines that came before it are no answers to it. It returns what an answer has to name beside y
// or n, so that what was typed for something else answers nothing: the number of the question, except for the first
// question where it is known that nothing was typed before it.
func (u *typist) ask() string {
	u.asked++
	plain := u.asked == 1 && u.lines != nil
	if u.lines == nil {
		u.lines = u.begin()
	}
	for {
		select {
		case line, more := <-u.lines:
			if more {
				u.ahead, plain = append(u.ahead, line), false
				continue
			}
		default:
		}
		if plain {
			return ""
		}
		return fmt.Sprintf(" %d", u.asked)
	}
}

// message waits for the next message. The error is errQuit when an interrupt comes first.
func (u *typist) message(interrupts <-chan os.Signal) (line string, more bool, err error) {
	if len(u.ahead) > 0 {
		line, u.ahead = u.ahead[0], u.ahead[1:]
		return line, true, nil
	}
	select {
	case <-interrupts:
		return "", false, errQuit
	case line, more = <-u.lines:
		return line, more, nil
	}
}

// asker asks the user of `farhand chat` about calls that wait for an approval, one after the other, as far as the user
// may decide. The other calls are only shown, with who may.
type asker struct {
	ctx     context.Context
	remote  *remote
	screen  *chatScreen
	user    *typist       // nil: nobody can be asked
	waiting []approvalRow // questions for the user; the first was put
	put     string        // id of the question that was put last
	number  string        // what the answer to it has to name, after y or n
	lines   <-chan string // while a question is put, nil else
}

// event shows that a call waits, or what came of it.
func (q *asker) event(p approvalRow) {
	if p.State != "pending" {
		q.screen.note("  %s: %s", oneLine(p.Tool, 64), oneLine(p.outcome(), shownOutput))
		q.drop(p.ID)
		return
	}
	s := q.screen
	s.note("? %s waits for an approval: %s", oneLine(p.Tool, 64), oneLine(p.Reason, shownLink))
	s.note("  args: %s", printable(strings.ReplaceAll(p.ArgsText, "\n", "\n  ")))
	if len(p.Remarks) > 0 {
		s.note("  LOOK TWICE: %s", oneLine(strings.Join(p.Remarks, ", "), shownOutput))
	}
	if p.MayDecide && q.user != nil {
		q.waiting = append(q.waiting, p)
		q.next()
		return
	}
	q.tellHow(p)
}

// tellHow shows who may decide, and how.
func (q *asker) tellHow(p approvalRow) {
	who := "an approver"
	if len(p.Approvers) > 0 {
		who = strings.Join(p.Approvers, ", ")
	}
	q.screen.note("  %s left; who may decide: %s", p.left(), oneLine(who, shownLink))
	id := oneLine(p.ID, shownID)
	q.screen.note("  farhand approve allow %s  |  farhand approve deny %s", id, id)
}

// next puts the first question, or shows again that it is put.
func (q *asker) next() {
	if len(q.waiting) == 0 {
		q.lines = nil
		return
	}
	p := q.waiting[0]
	if q.lines == nil || q.put != p.ID {
		q.put, q.number = p.ID, q.user.ask()
		q.lines = q.user.lines
	}
	q.screen.note("  %s left. Allow this call of %s? y%s: once, n%s: no", p.left(), oneLine(p.Tool, 64),
		q.number, q.number)
}

// drop takes back a question that was decided elsewhere.
func (q *asker) drop(id string) {
	for i, p := range q.waiting {
		if p.ID == id {
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			q.next()
			return
		}
	}
}

// answer takes a line of the user; more is false when there are no more lines.
func (q *asker) answer(line string, more bool) {
	if !more {
		for _, p := range q.waiting {
			q.tellHow(p)
		}
		q.waiting, q.lines, q.user = nil, nil, nil
		return
	}
	decision := ""
	switch strings.ToLower(strings.Join(strings.Fields(line), " ")) {
	case "y" + q.number, "yes" + q.number:
		decision = "allow-once"
	case "n" + q.number, "no" + q.number:
		decision = "deny"
	default:
		q.next()
		return
	}
	p := q.waiting[0]
	q.waiting = q.waiting[1:]
	_, err := q.remote.do(q.ctx, http.MethodPost, pathApprovals+"/"+url.PathEscape(p.ID), nil,
		map[string]string{"decision": decision})
	if err != nil {
		q.screen.note("  not decided: %s", printable(fmt.Sprint(err)))
	}
	q.next()
}

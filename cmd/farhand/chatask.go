package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// asker asks the user of `farhand chat` about calls that wait for an approval, one after the other, as far as the user
// may decide. The other calls are only shown, with who may.
type asker struct {
	ctx     context.Context
	remote  *remote
	screen  *chatScreen
	input   func() <-chan string // lines of the user; nil: nobody can be asked
	waiting []approvalRow        // questions for the user; the first was put
	lines   <-chan string        // while a question is put, nil else
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
	if p.MayDecide && q.input != nil {
		q.waiting = append(q.waiting, p)
		q.put()
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
	q.screen.note("  farhand approve allow %s  |  farhand approve deny %s", p.ID, p.ID)
}

// put asks the first question, unless one is put already.
func (q *asker) put() {
	if len(q.waiting) == 0 {
		q.lines = nil
		return
	}
	if q.lines == nil {
		q.lines = q.input()
	}
	p := q.waiting[0]
	q.screen.note("  %s left. Allow this call of %s? y: once, n: no", p.left(), oneLine(p.Tool, 64))
}

// drop takes back a question that was decided elsewhere.
func (q *asker) drop(id string) {
	for i, p := range q.waiting {
		if p.ID == id {
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			q.put()
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
		q.waiting, q.lines, q.input = nil, nil, nil
		return
	}
	decision := ""
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		decision = "allow-once"
	case "n", "no":
		decision = "deny"
	default:
		q.put()
		return
	}
	p := q.waiting[0]
	q.waiting = q.waiting[1:]
	_, err := q.remote.do(q.ctx, http.MethodPost, pathApprovals+"/"+url.PathEscape(p.ID), nil,
		map[string]string{"decision": decision})
	if err != nil {
		q.screen.note("  not decided: %s", printable(fmt.Sprint(err)))
	}
	q.put()
}

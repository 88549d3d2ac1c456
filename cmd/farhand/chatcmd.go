package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/farhand/farhand/api/wire"
)

const (
	// maxChoices bounds the sessions that are listed if one has to be chosen.
	maxChoices = 20

	// maxChatLine bounds a line of input, in bytes. It is about what a gateway accepts.
	maxChatLine = 1 << 20

	// maxTypedAhead bounds the lines read before they are needed. Lines typed before a question do not answer it.
	maxTypedAhead = 256
)

var errQuit = errors.New("quit")

type chatOptions struct {
	remote   remote
	session  string
	thinking bool
	debug    bool
}

func (a *application) chatCommand() *cobra.Command {
	var o chatOptions
	cmd := &cobra.Command{
		Use:   "chat [MESSAGE…]",
		Short: "Talk to the agent of a session",
		Long: "Sends a message to the gateway's agent, which uses the tools of a connected device, and streams\n" +
			"the answer: text to standard output, tool calls to standard error. Without MESSAGE it reads\n" +
			"lines and answers each: Ctrl-C aborts the answer, or leaves if there is none; Ctrl-D leaves. A\n" +
			"call that needs approval is shown with its arguments and approvers. If you are one, you are\n" +
			"asked at the terminal. Exits 2 if an answer failed.",
		Example: "  farhand chat where am I\n  farhand chat --session laptop --thinking",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.chat(cmd.Context(), strings.Join(args, " "), o)
		},
	}
	f := cmd.Flags()
	o.remote.flags(f, a.environ)
	f.StringVar(&o.session, "session", "", "session to talk to (default: the only connected one)")
	f.BoolVar(&o.thinking, "thinking", false, "show the model's reasoning")
	f.BoolVar(&o.debug, "debug", false, "show what the model receives")
	return cmd
}

func (a *application) chat(ctx context.Context, message string, o chatOptions) error {
	if o.session == "" {
		var err error
		if o.session, err = onlySession(ctx, o.remote); err != nil {
			return err
		}
	}
	if message != "" {
		quit := make(chan struct{})
		defer close(quit)
		return a.chatTurn(ctx, message, o, a.userOf(&typist{begin: func() <-chan string {
			lines, _ := a.readLines(quit)
			return lines
		}}))
	}
	// The program's context ends with the first Ctrl-C. Here the first Ctrl-C only aborts an answer.
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(interrupts)
	return a.converse(context.WithoutCancel(ctx), o, interrupts)
}

// userOf returns user if this is a terminal, else nil. Lines of a pipe are messages, and never answers to questions.
func (a *application) userOf(user *typist) *typist {
	if isTerminal(a.err) && isTerminal(a.in) {
		return user
	}
	return nil
}

// onlySession returns the only connected session.
func onlySession(ctx context.Context, r remote) (string, error) {
	list, err := fetch[wire.SessionList](ctx, r, http.MethodGet, "/api/sessions",
		url.Values{"limit": {strconv.Itoa(maxChoices)}, "connected": {"true"}}, nil)
	if err != nil {
		return "", err
	}
	switch len(list.Sessions) {
	case 0:
		return "", errors.New("no device is connected; --session ID continues the conversation of an earlier one")
	case 1:
		return list.Sessions[0].SessionID, nil
	}
	var b strings.Builder
	b.WriteString("several devices are connected, choose one:")
	for _, s := range list.Sessions {
		fmt.Fprintf(&b, "\n  --session %s", oneLine(s.SessionID, shownID))
		if about := strings.TrimSpace(s.Name + " " + s.DeviceName); about != "" {
			fmt.Fprintf(&b, "  (%s)", oneLine(about, 60))
		}
	}
	return "", errors.New(b.String())
}

// converse answers one line after the other until there are no more or the user leaves. It continues after an answer
// that fails.
func (a *application) converse(ctx context.Context, o chatOptions, interrupts <-chan os.Signal) error {
	if isTerminal(a.err) {
		fmt.Fprintf(a.err, "talking to %s; Ctrl-C aborts an answer, Ctrl-D leaves\n", oneLine(o.session, shownID))
	}
	quit := make(chan struct{})
	defer close(quit)
	lines, failed := a.readLines(quit)
	user := &typist{lines: lines}
	for {
		if isTerminal(a.err) {
			fmt.Fprint(a.err, "> ")
		}
		line, more, err := user.message(interrupts)
		switch {
		case err != nil:
			return nil
		case !more:
			return <-failed
		case strings.TrimSpace(line) == "":
			continue
		}
		switch err := a.interruptible(ctx, line, o, interrupts, a.userOf(user)); {
		case errors.Is(err, errQuit):
			return nil
		case err != nil:
			fmt.Fprintln(a.err, "farhand:", printable(err.Error()))
		}
	}
}

// readLines reads the input until it ends. A read of a terminal cannot be interrupted: after the user has quit, the
// goroutine ends with the next line or with the program.
func (a *application) readLines(quit <-chan struct{}) (<-chan string, <-chan error) {
	lines, failed := make(chan string, maxTypedAhead), make(chan error, 1)
	go func() {
		defer close(lines)
		in := bufio.NewScanner(a.in)
		in.Buffer(nil, maxChatLine)
		for in.Scan() {
			select {
			case lines <- in.Text():
			case <-quit:
				return
			}
		}
		failed <- in.Err()
	}()
	return lines, failed
}

// interruptible runs a turn that the user can abort. A second interrupt, or SIGTERM, quits.
func (a *application) interruptible(
	ctx context.Context, message string, o chatOptions, interrupts <-chan os.Signal, user *typist,
) error {
	ctx, abort := context.WithCancel(ctx)
	defer abort()
	done := make(chan error, 1)
	go func() { done <- a.chatTurn(ctx, message, o, user) }()
	leaving := false
	for aborted := false; ; aborted = true {
		select {
		case err := <-done:
			if leaving {
				return errQuit
			}
			return err
		case s := <-interrupts:
			leaving = aborted || s == syscall.SIGTERM
			abort() // the turn ends immediately after
		}
	}
}

// typist is the user at a terminal. Some of their lines are messages, others answer questions. It is not safe for
// concurrent use.
type typist struct {
	lines <-chan string        // nil: nothing read yet
	begin func() <-chan string // starts reading if nothing was read yet
	ahead []string             // messages: lines read before a question
	asked int                  // questions asked
}

// ask starts a question. Lines typed before it do not answer it. It returns the question's number, which an answer must
// contain after y or n, so that a line typed for something else does not answer it. The first question has none if
// nothing was typed before it.
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

// message waits for the next message. It returns errQuit if an interrupt comes first.
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

// asker asks the user of `farhand chat` about calls that need an approval, one after the other, if the user may decide
// them. It only shows the other calls, with their approvers.
type asker struct {
	ctx     context.Context
	remote  *remote
	screen  *chatScreen
	user    *typist        // nil: no user can be asked
	waiting []approvalView // questions for the user; the first is open
	put     string         // id of the last question asked
	number  string         // what an answer to it must contain after y or n
	lines   <-chan string  // nil unless a question is open
}

// event shows that a call waits for an approval, or the decision.
func (q *asker) event(p approvalView) {
	if p.State != "pending" {
		q.screen.note("  %s: %s", oneLine(p.Tool, 64), oneLine(p.outcome(), shownOutput))
		q.drop(p.ID)
		return
	}
	s := q.screen
	s.note("? %s waits for approval: %s", oneLine(p.Tool, 64), oneLine(p.Reason, shownLink))
	s.note("  args: %s", printable(strings.ReplaceAll(p.ArgsText, "\n", "\n  ")))
	if len(p.Remarks) > 0 {
		s.note("  WARNING: %s", oneLine(strings.Join(p.Remarks, ", "), shownOutput))
	}
	if p.MayDecide && q.user != nil {
		q.waiting = append(q.waiting, p)
		q.next()
		return
	}
	q.tellHow(p)
}

func (q *asker) tellHow(p approvalView) {
	who := "an approver"
	if len(p.Approvers) > 0 {
		who = strings.Join(p.Approvers, ", ")
	}
	q.screen.note("  %s left; approvers: %s", left(p.ExpiresAt), oneLine(who, shownLink))
	id := oneLine(p.ID, shownID)
	q.screen.note("  farhand approve allow %s  |  farhand approve deny %s", id, id)
}

// next asks the first question, or shows again that it is open.
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
	q.screen.note("  %s left. Allow this call of %s? y%s: once, n%s: no", left(p.ExpiresAt), oneLine(p.Tool, 64),
		q.number, q.number)
}

// drop withdraws a question that was decided elsewhere.
func (q *asker) drop(id string) {
	if i := slices.IndexFunc(q.waiting, func(p approvalView) bool { return p.ID == id }); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		q.next()
	}
}

// answer handles a line of the user. more is false if there are no more lines.
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
		decision = wire.DecisionOnce
	case "n" + q.number, "no" + q.number:
		decision = wire.DecisionDeny
	default:
		q.next()
		return
	}
	p := q.waiting[0]
	q.waiting = q.waiting[1:]
	err := q.remote.call(q.ctx, http.MethodPost, pathApprovals+"/"+url.PathEscape(p.ID),
		wire.DecisionRequest{Decision: decision})
	if err != nil {
		q.screen.note("  not decided: %s", printable(fmt.Sprint(err)))
	}
	q.next()
}

package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/caarlos0/env/v11"

	"github.com/farhand/farhand/cmd/farhand/demotools"
	"github.com/farhand/farhand/cmd/farhand/desktop"
	"github.com/farhand/farhand/cmd/farhand/nodetools"
	"github.com/farhand/farhand/ws/client"
)

// terminalApprover asks the person at the terminal, one question at a time.
type terminalApprover struct {
	out   io.Writer
	lines <-chan string
	turn  chan struct{} // capacity 1: holds a token while a question is open

	asked     int  // questions
	withdrawn bool // the last question was, so an answer to it may still come
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
	return decision // empty: the decision is made elsewhere
}

// confirm asks whether a command may run here. It returns false if no more input can come.
func (t *terminalApprover) confirm(ctx context.Context, command string) bool {
	text := "\nMay this command run here?\n  " + strings.ReplaceAll(printable(command), "\n", "\n  ") + "\n"
	return ask(ctx, t, text, []reply[bool]{{"y", "yes", "once", true}, {"n", "no", "no", false}})
}

// permit is a desktop.Ask.
func (t *terminalApprover) permit(ctx context.Context, q desktop.Question) desktop.Answer {
	replies := []reply[desktop.Answer]{{"y", "yes", "once", desktop.Once}}
	if q.Lasting {
		replies = append(replies,
			reply[desktop.Answer]{"a", "always", "always, until this program ends", desktop.Always})
	}
	replies = append(replies, reply[desktop.Answer]{"n", "no", "no", desktop.No})
	return ask(ctx, t, "\n"+strings.ReplaceAll(printable(q.Text), "\n", "\n  ")+"\n", replies)
}

type reply[T any] struct {
	key, word string
	means     string
	decision  T
}

// ask asks a question when no other is open, and waits for its answer. It returns the zero value if ctx ends or the
// input ends first. A line typed for something else must not answer it: after early lines, or after a withdrawn
// question, an answer must contain the number of its question.
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
			fmt.Fprintf(t.out, "\nquestion withdrawn: %s\n", printable(context.Cause(ctx).Error()))
			return decision
		}
	}
}

// forget drops lines typed before the question. early reports whether there were any, and more whether more may come.
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

// questionText renders a call so that a terminal can show it safely.
func questionText(q client.Question) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nMay %s run here?  (%s)\n  why: %s\n  args: %s\n", q.Tool, q.ID, q.Reason,
		strings.ReplaceAll(q.Text, "\n", "\n  "))
	if len(q.Remarks) > 0 {
		fmt.Fprintf(&b, "  WARNING: %s\n", strings.Join(q.Remarks, ", "))
	}
	return printable(b.String())
}

// maxNotification is how many characters of a notification are shown, all on one line, so that no part of it looks like
// a question of this program.
const maxNotification = 1000

// nodeCommands returns the commands of a node on this machine. The canvas is served until stop is called. stop waits
// for the canvas to end.
func (a *application) nodeCommands(
	ctx context.Context, o deviceOptions, terminal *terminalApprover,
) (commands []demotools.Tool, stop func() error, err error) {
	location, err := parseLocation(o.location)
	if err != nil {
		return nil, nil, err
	}
	canvas, stop, err := a.serveCanvas(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	confirm := func(context.Context, string) bool { return false }
	if isTerminal(a.in) {
		confirm = terminal.confirm
	}
	return nodetools.Tools(nodetools.Config{
		Confirm: confirm, Canvas: canvas, Location: location,
		Notify: func(title, body string) {
			if title != "" {
				title += ": "
			}
			fmt.Fprintf(a.out, "notification: %s\n", oneLine(title+body, maxNotification))
		},
	}), stop, nil
}

// serveCanvas serves a canvas until stop is called, which waits for it to end. open, unless nil, opens its page. The
// address that is printed always leads to the page, and is for this terminal only.
func (a *application) serveCanvas(ctx context.Context, open func(ctx context.Context, url string) error) (
	canvas *nodetools.Canvas, stop func() error, err error,
) {
	private, err := privateURLs(a.environ)
	if err != nil {
		return nil, nil, err
	}
	canvas = nodetools.NewCanvas(private)
	listener, url, err := canvas.Listen()
	if err != nil {
		return nil, nil, err
	}
	if open != nil {
		canvas.OpenWith(open)
	}
	ctx, cancel := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- canvas.Serve(ctx, listener) }()
	fmt.Fprintf(a.out, "canvas: open %s in a browser of this machine\n", url)
	return canvas, func() error { cancel(); return <-served }, nil
}

// privateURLs reports whether the canvas may load from private networks. It reads the same variable as a gateway.
func privateURLs(environ []string) (bool, error) {
	const name = envPrefix + "PRIVATE_URLS"
	value := env.ToMap(environ)[name]
	if value == "" {
		return false, nil
	}
	private, err := strconv.ParseBool(value)
	if err != nil {
		return false, fmt.Errorf("%s: must be true or false", name)
	}
	return private, nil
}

// parseLocation parses LATITUDE,LONGITUDE. An empty text is no location.
func parseLocation(text string) (*nodetools.Location, error) {
	if text == "" {
		return nil, nil
	}
	first, second, _ := strings.Cut(text, ",")
	latitude, err1 := strconv.ParseFloat(strings.TrimSpace(first), 64)
	longitude, err2 := strconv.ParseFloat(strings.TrimSpace(second), 64)
	if err1 != nil || err2 != nil || !(latitude >= -90 && latitude <= 90) || !(longitude >= -180 && longitude <= 180) {
		return nil, fmt.Errorf("--location %q must look like 48.2083,16.3731", text)
	}
	return &nodetools.Location{Latitude: latitude, Longitude: longitude, Source: "flag"}, nil
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/internal/ssereader"
	"github.com/farhand/farhand/registry"
)

const (
	// maxChatEvent bounds one event of an answer, in bytes.
	maxChatEvent = 16 << 20

	// shownArgs, shownOutput, shownLink and shownPrompt bound how much of a call and of a request to the model is
	// shown, in characters.
	shownArgs   = 80
	shownOutput = 120
	shownLink   = 500
	shownPrompt = 200
)

var (
	errAborted   = errors.New("the answer was aborted")
	errBrokenOff = errors.New("the answer was cut off: the connection to the gateway was lost, or the gateway stopped")
)

// chatEvent has the fields of a turn's event that are shown.
type chatEvent struct {
	Type         string          `json:"type"`
	Content      string          `json:"content"`
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Args         json.RawMessage `json:"args"`
	Output       string          `json:"output"`
	Status       string          `json:"status"`
	Parts        []registry.Part `json:"parts"`
	FullResponse string          `json:"full_response"`
	Title        string          `json:"title"`
	Message      string          `json:"message"`
	Code         string          `json:"code"`
	Tokens       int             `json:"estimated_tokens"`

	Messages []wire.PromptMessage `json:"messages"`
}

// chatTurn sends a message and shows the turn. If user is not nil, it is asked about calls. The error says why the
// answer is missing or incomplete.
func (a *application) chatTurn(ctx context.Context, message string, o chatOptions, user *typist) error {
	events, err := openTurn(ctx, o, message)
	if err != nil {
		if ctx.Err() != nil {
			return errAborted
		}
		return err
	}
	show := chatScreen{out: a.out, err: a.err, options: o, called: make(map[string]bool)}
	questions := asker{ctx: ctx, remote: &o.remote, screen: &show, user: user}
	happened := make(chan turnEvent)
	quit := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() { readTurn(events, happened, quit) })
	defer func() {
		close(quit)
		_ = events.Close()
		reading.Wait()
	}()
	for {
		select {
		case line, more := <-questions.lines:
			questions.answer(line, more)
		case h := <-happened:
			if h.err != nil {
				show.newLine()
				return brokenOff(ctx, h.err)
			}
			if last, err := show.turnEvent(h.data, &questions); last || err != nil {
				return err
			}
		}
	}
}

// turnEvent is an event of a turn, or the error that ended the stream.
type turnEvent struct {
	data []byte
	err  error
}

// readTurn reads the events of a turn until they end, or quit is closed.
func readTurn(events io.Reader, happened chan<- turnEvent, quit <-chan struct{}) {
	for in := ssereader.New(events, maxChatEvent); ; {
		event, err := in.Next()
		select {
		case happened <- turnEvent{slices.Clone(event.Data), err}:
		case <-quit:
			return
		}
		if err != nil {
			return
		}
	}
}

// turnEvent shows one event. It reports whether the event is the last, and then how the turn ended.
func (s *chatScreen) turnEvent(data []byte, questions *asker) (last bool, err error) {
	var e chatEvent
	if err := decodeAnswer(data, &e); err != nil {
		return false, err
	}
	if e.Type == "approval_request" || e.Type == "approval_decided" {
		var p approvalView
		if err := decodeAnswer(data, &p); err != nil {
			return false, err
		}
		questions.event(p)
		return false, nil
	}
	return s.event(e)
}

// brokenOff explains why a turn's events ended before the turn.
func brokenOff(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return errAborted
	case errors.Is(err, ssereader.ErrTooLong):
		return fmt.Errorf("an event of the answer is longer than %d bytes", maxChatEvent)
	}
	return errBrokenOff
}

// openTurn starts a turn and returns its events.
func openTurn(ctx context.Context, o chatOptions, message string) (io.ReadCloser, error) {
	stream := true
	body := wire.MessageRequest{Content: message, Debug: &o.debug, Stream: &stream, Results: "plain"}
	path := "/api/sessions/" + url.PathEscape(o.session) + "/messages"
	resp, err := o.remote.events(ctx, http.MethodPost, path, nil, body, "")
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		_ = resp.Body.Close()
		return nil, problem{Code: registry.Code(resp.Status), Detail: "the answer is not from a Farhand gateway"}
	}
	return resp.Body, nil
}

// chatScreen shows a turn: the model's text on out, everything else on err, each on lines of its own. Models and
// devices may send anything, so control characters are made visible.
type chatScreen struct {
	out, err io.Writer
	options  chatOptions
	called   map[string]bool // calls already shown, by id
	said     bool            // the model has sent text
	open     io.Writer       // where an unfinished line is, nil at the start of a line
}

func (s *chatScreen) event(e chatEvent) (last bool, err error) {
	switch e.Type {
	case "chunk":
		s.said = true
		s.write(s.out, e.Content)
	case "thinking":
		if s.options.thinking {
			s.write(s.err, e.Content)
		}
	case "tool_call":
		if !s.called[e.ID] { // repeated when its status changes
			s.called[e.ID] = true
			s.note("→ %s %s", oneLine(e.Name, 64), oneLine(string(e.Args), shownArgs))
		}
	case "tool_result":
		mark := "←"
		if e.Status == "failed" {
			mark = "✗"
		}
		s.note("%s %s: %s", mark, oneLine(e.Name, 64), oneLine(e.Output, shownOutput))
		for _, p := range e.Parts {
			what := oneLine(describePart(p), shownOutput)
			if link := partLink(&s.options.remote, p); link != "" {
				what += ": " + oneLine(link, shownLink)
			}
			s.note("  [%s]", what)
		}
	case "title_updated":
		s.note("title: %s", oneLine(e.Title, shownOutput))
	case "debug_prompt":
		s.note("prompt: %d messages, about %d tokens", len(e.Messages), e.Tokens)
		for _, m := range e.Messages {
			s.note("  %s: %s", oneLine(m.Role, 16), oneLine(m.Content, shownPrompt))
		}
	case "done":
		if !s.said {
			s.write(s.out, e.FullResponse)
		}
		s.newLine()
		return true, nil
	case "aborted":
		s.newLine()
		return true, errAborted
	case "error":
		s.newLine()
		return true, fmt.Errorf("%s: %s", oneLine(e.Code, 64), printable(e.Message))
	}
	return false, nil
}

// write continues the unfinished line if it is on the same stream.
func (s *chatScreen) write(to io.Writer, text string) {
	if text == "" {
		return
	}
	if s.open != nil && s.open != to {
		s.newLine()
	}
	fmt.Fprint(to, printable(text))
	s.open = to
	if strings.HasSuffix(text, "\n") {
		s.open = nil
	}
}

func (s *chatScreen) note(format string, args ...any) {
	s.newLine()
	fmt.Fprintf(s.err, format+"\n", args...)
}

func (s *chatScreen) newLine() {
	if s.open != nil {
		fmt.Fprintln(s.open)
		s.open = nil
	}
}

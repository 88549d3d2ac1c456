package provider

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	maxCalls     = 128 // of one answer
	callOverhead = 64  // bytes a call or a thought counts for, besides its text
)

// answer is an answer that is being read.
type answer struct {
	emit     func(Delta)
	limit    int // bytes
	size     int
	said     bool // something was emitted
	refused  bool // the model says that it does not answer
	text     strings.Builder
	thoughts []*thought
	calls    []*call
	usage    Usage
	stop     StopReason // empty: not yet
}

type thought struct {
	text      strings.Builder
	signature strings.Builder
	redacted  string
}

type call struct {
	id, name string
	args     strings.Builder
	extent   extent
	index    int64
	indexed  bool // index is the server's
}

func newAnswer(emit func(Delta), limit int) *answer {
	if emit == nil {
		emit = func(Delta) {}
	}
	return &answer{emit: emit, limit: limit}
}

// grow counts n more bytes.
func (a *answer) grow(n int) error {
	a.size += n
	if a.size > a.limit {
		return tooLong{fmt.Sprintf("%d bytes", a.limit)}
	}
	return nil
}

func (a *answer) addText(s string) error { return a.say(s, Delta{Text: s}) }

func (a *answer) addRefusal(s string) error { return a.say(s, Delta{Refusal: s}) }

func (a *answer) say(s string, d Delta) error {
	if s == "" {
		return nil
	}
	if err := a.grow(len(s)); err != nil {
		return err
	}
	a.text.WriteString(s)
	a.said = true
	a.emit(d)
	return nil
}

func (a *answer) newThought() (*thought, error) {
	t := &thought{}
	a.thoughts = append(a.thoughts, t)
	return t, a.grow(callOverhead)
}

func (a *answer) addThinking(t *thought, s string) error {
	if s == "" {
		return nil
	}
	if err := a.grow(len(s)); err != nil {
		return err
	}
	t.text.WriteString(s)
	a.said = true
	a.emit(Delta{Thinking: s})
	return nil
}

func (a *answer) newCall(id, name string) (*call, error) {
	if len(a.calls) == maxCalls {
		return nil, tooLong{fmt.Sprintf("%d tool calls", maxCalls)}
	}
	c := &call{id: id, name: name}
	a.calls = append(a.calls, c)
	return c, a.grow(callOverhead + len(id) + len(name))
}

func (a *answer) addArgs(c *call, s string) error {
	c.args.WriteString(s)
	c.extent.follow(s)
	return a.grow(len(s))
}

// partial returns what was said, without calls: half a call must not run, and none can be sent back without its result.
func (a *answer) partial() Answer {
	m := Message{Role: RoleAssistant, Content: a.text.String()}
	for _, t := range a.thoughts {
		said := Thought{Text: t.text.String(), Signature: t.signature.String(), Redacted: t.redacted}
		m.Thinking = append(m.Thinking, said)
	}
	return Answer{Message: m, Stop: a.stop, Usage: a.usage}
}

// whole returns the answer. Some servers end one that holds calls as if it held none, and the other way round; what it
// holds counts.
func (a *answer) whole() Answer {
	out := a.partial()
	out.Message.ToolCalls = identified(a.calls)
	switch {
	case out.Stop == StopEnd && len(a.calls) > 0:
		out.Stop = StopToolCalls
	case out.Stop == StopToolCalls && len(a.calls) == 0:
		out.Stop = StopEnd
	}
	return out
}

// ended says what the end of a stream means; nil: the answer is whole. What breaks behind the stop reason takes
// nothing from the answer, unless the server says that it does.
func (a *answer) ended(err error) error {
	_, reported := errors.AsType[*failure](err)
	switch {
	case reported || isTooLong(err):
		return err
	case a.stop != "":
		return nil
	case errors.Is(err, io.EOF):
		return errCutOff
	}
	return err
}

package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"
)

const (
	maxCalls     = 128 // in one answer
	callOverhead = 64  // size of a call or a thought, in bytes, in addition to its text
)

// answer is an answer while it is read.
type answer struct {
	emit     func(Delta)
	limit    int // bytes
	size     int
	room     func(bytes int) error // nil: no limit of all answers
	roomed   int                   // bytes that room was asked for
	said     bool                  // text or thinking was emitted
	refused  bool                  // the model declines to answer
	text     strings.Builder
	thoughts []*thought
	calls    []*call
	usage    Usage
	stop     StopReason // empty: not known yet
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
	index    *lenientInt // nil: the server gave none
}

func newAnswer(emit func(Delta), limit int, room func(bytes int) error) *answer {
	if emit == nil {
		emit = func(Delta) {}
	}
	return &answer{emit: emit, limit: limit, room: room, roomed: freeRoom}
}

// freeRoom is how many bytes of an answer need no room: nearly all answers are shorter.
const freeRoom = 64 << 10

// hold asks for room for the answer so far, and for an event of which so many bytes were read.
func (a *answer) hold(event int) error {
	if a.room == nil || a.size+event <= a.roomed {
		return nil
	}
	a.roomed = a.size + event
	if err := a.room(a.roomed); err != nil {
		return errors.Join(errNoRoom, err)
	}
	return nil
}

func (a *answer) grow(n int) error {
	a.size += n
	if a.size > a.limit {
		return fmt.Errorf("%w %d bytes", errTooLong, a.limit)
	}
	return a.hold(0)
}

func (a *answer) addText(s string) error { return a.say(s, Delta{Text: s}) }

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
		return nil, fmt.Errorf("%w %d tool calls", errTooLong, maxCalls)
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

// partial returns the answer so far, without calls: an incomplete call must not run, and a call cannot be sent back
// without its result.
func (a *answer) partial() Answer {
	m := Message{Role: RoleAssistant, Content: a.text.String()}
	for _, t := range a.thoughts {
		said := Thought{Text: t.text.String(), Signature: t.signature.String(), Redacted: t.redacted}
		m.Thinking = append(m.Thinking, said)
	}
	return Answer{Message: m, Stop: a.stop, Usage: a.usage}
}

// whole returns the complete answer. Some servers send a stop reason that does not match the calls. The calls decide.
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

// ended returns the error of a stream that ended with err, or nil if the answer is complete. An error after the stop
// reason is ignored, unless the server reported it or the answer is too long.
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

// identified returns the calls of a complete answer, each with arguments and a unique id, to which its result refers.
func identified(calls []*call) []ToolCall {
	var out []ToolCall
	seen := make(map[string]bool, len(calls))
	for _, c := range calls {
		if c.id == "" || seen[c.id] {
			c.id = "call_" + strings.ReplaceAll(uuid.NewString(), "-", "") // 37 characters; OpenAI allows 40
		}
		seen[c.id] = true
		args := c.args.String()
		if strings.TrimSpace(args) == "" {
			args = "{}"
		}
		out = append(out, ToolCall{ID: c.id, Name: c.name, Args: args})
	}
	return out
}

// extent detects, piece by piece, whether a JSON object is complete. It does not check that the object is well formed.
type extent struct {
	depth                   int
	quoted, escaped, closed bool
}

func (e *extent) follow(s string) {
	for i := range len(s) {
		switch c := s[i]; {
		case e.escaped:
			e.escaped = false
		case e.quoted:
			e.escaped, e.quoted = c == '\\', c != '"'
		case c == '"':
			e.quoted = true
		case c == '{' || c == '[':
			e.depth++
		case c == '}' || c == ']':
			e.depth--
			e.closed = e.closed || e.depth == 0
		}
	}
}

// Errors of a stream that its server does not report.
var (
	errCutOff   = errors.New("the stream ended before the answer did")
	errNonsense = errors.New("the stream is invalid")
	errTooLong  = errors.New("the answer is longer than") // it is not retried: the next answer would be as long
	errNoRoom   = errors.New("there is no room for the answer")
)

// maxServerText is the maximum length of a server's message that is shown, in characters.
const maxServerText = 300

// statusOverloaded is a non-standard status of Anthropic.
const statusOverloaded = 529

// failure is the error of one attempt, and whether it is temporary.
type failure struct {
	err     *Error
	passing bool
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// refused returns the failure for an HTTP status, or for a stream event that corresponds to a status.
func (c *caller) refused(status int, text string, advice time.Duration) *failure {
	kind, sentence := KindFailure, "The provider of %q failed (%d). Try again later."
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		kind = KindAuth
		sentence = "The provider of %q rejected the gateway's key (%d). Ask the operator to check it."
	case http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		kind, sentence = KindRequest, "The model %q rejected the request (%d)."
	case http.StatusTooManyRequests:
		kind, sentence = KindLimit, "The provider of %q is at its rate limit (%d). Try again later."
	}
	e := &Error{Kind: kind, Message: fmt.Sprintf(sentence, c.cfg.Name, status), Status: status, RetryAfter: advice}
	switch text = c.presentable(text); {
	case text == "":
	case kind == KindAuth, kind == KindLimit, status == http.StatusPaymentRequired:
		// The text is about the key or the account. It is for the operator, not for the users of the model.
		e.Cause = errors.New("it says: " + text)
	default:
		e.Message += " It says: " + text
	}
	passing := status >= http.StatusInternalServerError || status == http.StatusRequestTimeout ||
		status == http.StatusConflict || status == http.StatusTooManyRequests
	return &failure{err: e, passing: passing}
}

// presentable makes a server's text fit for people and logs: one short line without the API key.
func (c *caller) presentable(text string) string {
	if c.cfg.APIKey != "" {
		text = strings.ReplaceAll(text, c.cfg.APIKey, "[key]")
	}
	text = strings.ToValidUTF8(text, "�")
	blank := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }
	text = strings.Join(strings.FieldsFunc(text, blank), " ")
	if runes := []rune(text); len(runes) > maxServerText {
		text = string(runes[:maxServerText-1]) + "…"
	}
	return text
}

// statusOf returns the status that corresponds to the type or code of an error in a stream.
func statusOf(name string) (int, bool) {
	known := map[string]int{
		"invalid_request_error": 400, "context_length_exceeded": 400, "BadRequestError": 400,
		"authentication_error": 401, "invalid_api_key": 401, "billing_error": 402, "permission_error": 403,
		"not_found_error": 404, "model_not_found": 404, "request_too_large": 413,
		"rate_limit_error": 429, "rate_limit_exceeded": 429, "insufficient_quota": 429,
		"timeout_error": 504, "overloaded_error": statusOverloaded,
	}
	if status := known[name]; status != 0 {
		return status, true
	}
	n, err := strconv.Atoi(name)
	return n, err == nil && n >= 400 && n < 600
}

// reportedIn returns the failure that an event of a stream reports. Of a longer event than an error's body only the
// beginning is read: to make all of it presentable takes a multiple of its memory.
func (c *caller) reportedIn(event []byte) *failure {
	status, text := reported(event[:min(len(event), maxErrorBody)])
	return c.refused(status, text, 0)
}

// reported parses the error in a body or a stream: {"error":{"message","type","code"}} of the vendors,
// {"error":"text"}, {"message":…} and {"detail":…} of others, or text that is not JSON. Without a known type or code,
// the status is 500.
func reported(data []byte) (status int, text string) {
	var body struct {
		Error, Message, Detail json.RawMessage
	}
	if json.Unmarshal(data, &body) != nil {
		return http.StatusInternalServerError, string(data)
	}
	var inner struct {
		Message, Type, Code json.RawMessage
	}
	_ = json.Unmarshal(body.Error, &inner) // an error that is a string leaves it empty
	status = http.StatusInternalServerError
	for _, name := range []json.RawMessage{inner.Code, inner.Type} {
		if s, ok := statusOf(plain(name)); ok {
			status = s
			break
		}
	}
	for _, text := range []json.RawMessage{inner.Message, body.Error, body.Message, body.Detail} {
		if t := plain(text); t != "" {
			return status, t
		}
	}
	return status, string(data)
}

func plain(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// adviceOf returns how long a server asks to wait. Zero: no advice.
func adviceOf(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return seconds(ms / 1000)
	}
	value := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(value, 64); err == nil {
		return seconds(s)
	}
	if at, err := http.ParseTime(value); err == nil {
		return seconds(at.Sub(now).Seconds())
	}
	return 0
}

// seconds converts seconds from a server to a Duration, at most one day: longer waits make no difference.
func seconds(s float64) time.Duration {
	if !(s > 0) { // also NaN
		return 0
	}
	return time.Duration(min(s, 24*60*60) * float64(time.Second))
}

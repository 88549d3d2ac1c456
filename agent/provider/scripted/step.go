package scripted

import (
	"net/http"

	"github.com/farhand/farhand/agent/provider"
)

// Step is the answer to one request.
type Step struct {
	status        int // zero: a stream
	message, body string
	header        http.Header
	parts         []Part
}

// Reply answers with a stream of these parts. Unless a part ends it otherwise, the stream ends as the vendor ends an
// answer, with a stop reason that fits the parts.
func Reply(parts ...Part) Step { return Step{parts: parts} }

// Fail answers with an HTTP status, and a message in the vendor's kind of body.
func Fail(status int, message string) Step {
	return Step{status: status, message: message, header: http.Header{}}
}

// With adds a header to a Fail.
func (s Step) With(name, value string) Step {
	s.header = s.header.Clone()
	s.header.Set(name, value)
	return s
}

// Body replaces the body of a Fail.
func (s Step) Body(body string) Step {
	s.body = body
	return s
}

// Part is a piece of a stream.
type Part struct {
	usage *provider.Usage
	play  func(p *player)
}

// Call is a tool call a model makes.
type Call struct {
	ID     string // default: a unique one
	Name   string
	Args   string // as it is, JSON or not
	Pieces int    // in how many deltas the arguments come; default 3
}

// Text says something, each piece in a delta of its own.
func Text(pieces ...string) Part {
	return Part{play: func(p *player) {
		for _, s := range pieces {
			p.speaker.text(s)
		}
	}}
}

// Refusal says why there is no answer, each piece in a delta of its own. Anthropic's format has no field for it: there
// it is text, and the reason why the answer ends.
func Refusal(pieces ...string) Part {
	return Part{play: func(p *player) {
		for _, s := range pieces {
			p.speaker.refusal(s)
		}
	}}
}

// Thinking reasons, each piece in a delta of its own. Anthropic's format gives it a signature, and the server refuses a
// later request that brings back the thought with another one.
func Thinking(pieces ...string) Part {
	return Part{play: func(p *player) {
		for _, s := range pieces {
			p.speaker.thinking(s)
		}
	}}
}

// Redacted is a thought that only the vendor can read. OpenAI's format has none.
func Redacted(data string) Part {
	return Part{play: func(p *player) { p.speaker.redacted(data) }}
}

// Calls makes calls in parallel, their pieces in turn.
func Calls(calls ...Call) Part {
	return Part{play: func(p *player) {
		p.called = p.called || len(calls) > 0
		p.speaker.calls(p.identified(calls))
	}}
}

// Usage counts tokens. Wherever it stands, its numbers come where the vendor puts them.
func Usage(input, output int) Part {
	return Part{usage: &provider.Usage{Input: input, Output: output}}
}

// Stop sets why the answer ends.
func Stop(reason provider.StopReason) Part {
	return Part{play: func(p *player) { p.stop = reason }}
}

// Hold says nothing until release is closed or received from. It ends, too, when the client is gone or the test is
// over. With one between the pieces of a text it comes as slowly as the test likes.
func Hold(release <-chan struct{}) Part {
	return Part{play: func(p *player) {
		select {
		case <-release:
		case <-p.request.Context().Done():
		case <-p.closing:
		}
	}}
}

// Do calls f when the stream has come this far. What was said before is on its way to the client by then.
func Do(f func()) Part { return Part{play: func(*player) { f() }} }

// Ping sends what a vendor sends to keep a connection alive.
func Ping() Part { return Part{play: func(p *player) { p.speaker.ping() }} }

// Fault reports an error in mid-stream, such as overloaded_error, and ends the stream.
func Fault(kind, message string) Part {
	return Part{play: func(p *player) {
		p.speaker.fault(kind, message)
		p.over = true
	}}
}

// Garbage sends an event that is not JSON.
func Garbage() Part { return Part{play: func(p *player) { p.speaker.garbage() }} }

// Raw sends text as it is, line ends included.
func Raw(text string) Part { return Part{play: func(p *player) { p.write(text) }} }

// Cut breaks the connection.
func Cut() Part {
	return Part{play: func(*player) { panic(http.ErrAbortHandler) }} // the way net/http has for it
}

// End ends the stream in good order, but without the events that end an answer.
func End() Part { return Part{play: func(p *player) { p.over = true }} }

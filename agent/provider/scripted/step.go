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

// Reply answers with a stream of these parts. Unless a part ends it, the stream ends like an answer of the vendor, with
// a stop reason that fits the parts.
func Reply(parts ...Part) Step { return Step{parts: parts} }

// Fail answers with an HTTP status and a message in the vendor's format.
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

// Call is a tool call of the model.
type Call struct {
	ID     string // default: a unique id
	Name   string
	Args   string // sent unchanged, valid JSON or not
	Pieces int    // number of deltas with the arguments; default 3
}

// Text sends text, each piece in its own delta.
func Text(pieces ...string) Part {
	return Part{play: func(p *player) {
		for _, s := range pieces {
			p.speaker.text(s)
		}
	}}
}

// Refusal declines to answer, each piece in its own delta. Anthropic's format has no field for the text: there it is
// plain text, with a stop reason.
func Refusal(pieces ...string) Part {
	return Part{play: func(p *player) {
		for _, s := range pieces {
			p.speaker.refusal(s)
		}
	}}
}

// Thinking sends reasoning, each piece in its own delta. Anthropic's format signs it, and the server rejects later
// requests that return it with another signature.
func Thinking(pieces ...string) Part {
	return Part{play: func(p *player) {
		for _, s := range pieces {
			p.speaker.thinking(s)
		}
	}}
}

// Redacted sends encrypted reasoning. OpenAI's format has none.
func Redacted(data string) Part {
	return Part{play: func(p *player) { p.speaker.redacted(data) }}
}

// Calls sends parallel calls, with their pieces interleaved.
func Calls(calls ...Call) Part {
	return Part{play: func(p *player) {
		p.called = p.called || len(calls) > 0
		p.speaker.calls(p.identified(calls))
	}}
}

// Usage reports token counts, at the vendor's place in the stream.
func Usage(input, output int) Part {
	return Part{usage: &provider.Usage{Input: input, Output: output}}
}

// Stop sets the stop reason.
func Stop(reason provider.StopReason) Part {
	return Part{play: func(p *player) { p.stop = reason }}
}

// Hold pauses until release is closed or delivers a value, the client disconnects, or the test ends.
func Hold(release <-chan struct{}) Part {
	return Part{play: func(p *player) {
		select {
		case <-release:
		case <-p.request.Context().Done():
		case <-p.closing:
		}
	}}
}

// Do calls f when the stream reaches it, after the earlier parts were sent.
func Do(f func()) Part { return Part{play: func(*player) { f() }} }

// Ping sends the vendor's keep-alive.
func Ping() Part { return Part{play: func(p *player) { p.speaker.ping() }} }

// Fault reports an error in the stream, such as overloaded_error, and ends the stream.
func Fault(kind, message string) Part {
	return Part{play: func(p *player) {
		p.speaker.fault(kind, message)
		p.over = true
	}}
}

// Garbage sends an event that is not JSON.
func Garbage() Part { return Part{play: func(p *player) { p.speaker.garbage() }} }

// Raw sends text unchanged, including line ends.
func Raw(text string) Part { return Part{play: func(p *player) { p.write(text) }} }

// Cut breaks the connection.
func Cut() Part {
	return Part{play: func(*player) { panic(http.ErrAbortHandler) }} // net/http then closes the connection
}

// End ends the stream cleanly, but without the events that end an answer.
func End() Part { return Part{play: func(p *player) { p.over = true }} }

package chat

import (
	"slices"
	"strings"

	"github.com/farhand/farhand/agent/provider"
)

// redacted stands in place of the nonce in all that leaves the gateway. A model can be made to repeat the nonce, and
// its reader may be the device whose output the nonce marks, or whoever wrote that output.
const redacted = "…"

// redact removes the nonce from text, in whatever case its letters are.
func (m mark) redact(text string) string {
	if m.nonce == "" || len(text) < len(m.nonce) {
		return text
	}
	var b strings.Builder
	lower := lowered(text)
	for {
		i := strings.Index(lower, m.nonce)
		if i < 0 {
			break
		}
		b.WriteString(text[:i])
		b.WriteString(redacted)
		text, lower = text[i+len(m.nonce):], lower[i+len(m.nonce):]
	}
	if b.Len() == 0 {
		return text
	}
	return b.String() + text
}

// redactMessage removes the nonce from the text, the thoughts and the calls of a message. Thoughts that go back to
// their model must stay as they are, because the vendor signs them: so it is for what people read.
func (m mark) redactMessage(said provider.Message) provider.Message {
	said = m.redactAnswer(said)
	said.Thinking = slices.Clone(said.Thinking)
	for i := range said.Thinking {
		said.Thinking[i].Text = m.redact(said.Thinking[i].Text)
	}
	return said
}

// redactAnswer removes the nonce from the text and the calls of a message.
func (m mark) redactAnswer(said provider.Message) provider.Message {
	said.Content = m.redact(said.Content)
	said.ToolCalls = slices.Clone(said.ToolCalls)
	for i := range said.ToolCalls {
		c := &said.ToolCalls[i]
		c.Name, c.Args = m.redact(c.Name), m.redact(c.Args)
	}
	return said
}

// lowered returns text with the capitals of ASCII as small letters, byte for byte.
func lowered(text string) string {
	b := []byte(text)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + ('a' - 'A')
		}
	}
	return string(b)
}

// redactor removes the nonce from an answer that is streamed, also where it is split between pieces: what may be the
// beginning of the nonce waits for the next piece.
type redactor struct {
	mark                    mark
	thinking, text, refusal string // what waits
}

// pass returns what can go out once a piece has come.
func (r *redactor) pass(d provider.Delta) provider.Delta {
	return provider.Delta{
		Thinking: r.next(&r.thinking, d.Thinking, d.Text+d.Refusal != ""),
		Text:     r.next(&r.text, d.Text, d.Refusal != ""),
		Refusal:  r.next(&r.refusal, d.Refusal, false),
	}
}

// rest returns what still waits when the answer has ended.
func (r *redactor) rest() provider.Delta {
	rest := provider.Delta{Thinking: r.thinking, Text: r.text, Refusal: r.refusal}
	r.thinking, r.text, r.refusal = "", "", ""
	return rest
}

// next adds a piece to what waits, and returns what can go out: all of it if the text has ended.
func (r *redactor) next(waits *string, piece string, ended bool) string {
	out := r.mark.redact(*waits + piece)
	keep := 0
	if !ended {
		keep = r.begun(out)
	}
	*waits = out[len(out)-keep:]
	return out[:len(out)-keep]
}

// begun returns how many bytes at the end of text are the beginning of a nonce.
func (r *redactor) begun(text string) int {
	tail := lowered(text[max(0, len(text)-len(r.mark.nonce)+1):])
	for ; tail != ""; tail = tail[1:] {
		if strings.HasPrefix(r.mark.nonce, tail) {
			break
		}
	}
	return len(tail)
}

package chat

import (
	"fmt"
	"slices"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

const (
	leastText = 512 // bytes that a truncated text keeps: enough for the marks around a tool's output
	leastArgs = 128 // arguments up to this length are not replaced, in bytes

	noteImage = "[an image, left out to make room]"
)

// shortenGroup makes one group of messages fit into about limit tokens. Each step is taken only if the ones before were
// not enough: leave out the images of results, the oldest first, truncate texts that exceed half of the limit by
// themselves, replace the oldest results of tools by notes, then images, thoughts and arguments, and at last truncate
// all texts to the same length. A group that does not fit even then cannot be sent.
func shortenGroup(messages []provider.Message, limit int) []provider.Message {
	messages = slices.Clone(messages)
	total := estimateAll(messages)
	each := func(step func(m *provider.Message)) {
		for i := range messages {
			if total <= limit {
				return
			}
			was := estimate(messages[i])
			step(&messages[i])
			total += estimate(messages[i]) - was
		}
	}
	half := max(limit*bytesPerToken/2, leastText)
	each(leaveOutPictures)
	each(func(m *provider.Message) { truncateText(m, half) })
	each(leaveOutResult)
	each(leaveOutImages)
	each(func(m *provider.Message) { m.Thinking = nil })
	each(leaveOutArgs)
	for length := half; total > limit && length > leastText; {
		length = max(length/2, leastText)
		each(func(m *provider.Message) { truncateText(m, length) })
	}
	return messages
}

// truncateText leaves at most n bytes of the text of a message.
func truncateText(m *provider.Message, n int) {
	if len(m.Content) <= n {
		return
	}
	leaveOutImages(m)
	m.Content, m.Parts = truncate(m.Content, n), nil
}

// leaveOutResult replaces the result of a tool by a note.
func leaveOutResult(m *provider.Message) {
	note := fmt.Sprintf("[a result of %d bytes, left out to make room]", len(m.Content))
	if m.Role == provider.RoleTool && len(note) < len(m.Content) {
		m.Content = note
	}
}

// leaveOutPictures leaves out the images of a result. A note stands in their place.
func leaveOutPictures(m *provider.Message) {
	if len(m.Pictures) > 0 {
		m.Content, m.Pictures = m.Content+"\n"+noteImage, nil
	}
}

// leaveOutImages replaces the images of a message by notes.
func leaveOutImages(m *provider.Message) {
	if images(*m) == 0 {
		return
	}
	m.Content = ""
	for _, p := range m.Parts {
		if p.Image != nil {
			p.Text = noteImage
		}
		m.Content += p.Text
	}
	m.Parts = nil
}

// leaveOutArgs replaces long arguments by a note, which is a JSON object as arguments are.
func leaveOutArgs(m *provider.Message) {
	m.ToolCalls = slices.Clone(m.ToolCalls)
	for i := range m.ToolCalls {
		if n := len(m.ToolCalls[i].Args); n > leastArgs {
			m.ToolCalls[i].Args = fmt.Sprintf(`{"left_out":"%d bytes, to make room"}`, n)
		}
	}
}

// images returns the number of images in a message.
func images(m provider.Message) int {
	n := 0
	for _, p := range m.Parts {
		if p.Image != nil {
			n++
		}
	}
	return n
}

// tooLong refuses a request that exceeds the limit after everything that can be left out was left out.
func (l *loop) tooLong(r provider.Request) error {
	fixed, tokens := estimateFixed(r), estimateFixed(r)+estimateAll(r.Messages)
	if tokens <= l.limits.ContextTokens {
		return nil
	}
	message := fmt.Sprintf("The conversation is too long: about %d tokens, %d of them instructions and tools; "+
		"a request may have %d. "+
		"Begin a new one, or bring fewer tools.", tokens, fixed, l.limits.ContextTokens)
	return &Error{Code: CodeProvider, Message: message, Cause: &provider.Error{
		Kind: provider.KindRequest, Message: message, Param: "messages", Cause: registry.CodeInvalidRequest,
	}}
}

package provider

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/farhand/farhand/internal/ssereader"
)

// opening is the user message that is added to a conversation that does not begin with the user.
const opening = "Begin."

func (m *Anthropic) body(r Request) ([]byte, error) {
	b := anthropicBody{
		Model: m.cfg.Name, Stream: true, Stop: r.Stop, System: textBlocks(r.System), Temperature: r.Temperature,
	}
	var err error
	if b.Messages, err = m.turns(r.Messages); err != nil {
		return nil, err
	}
	// The API requires that the user begins. A caller's conversation may begin with a greeting of the assistant.
	if len(b.Messages) == 0 || b.Messages[0].Role != RoleUser {
		b.Messages = slices.Insert(b.Messages, 0, anthropicMessage{Role: RoleUser, Content: textBlocks(opening)})
	}
	for _, t := range r.Tools {
		schema, err := schemaOf(t)
		if err != nil {
			return nil, err
		}
		tool := anthropicTool{Name: t.Name, Description: t.Description, InputSchema: schema, Strict: t.Strict}
		b.Tools = append(b.Tools, tool)
	}
	b.MaxTokens = cmp.Or(max(r.MaxTokens, 0), m.cfg.MaxTokens)
	if err := b.addOptions(r); err != nil {
		return nil, err
	}
	if r.Temperature != nil && *r.Temperature > 1 { // OpenAI allows up to 2
		return nil, unoffered{"temperature", "must be at most 1 for this provider"}
	}
	// A model that thinks accepts no temperature and no forced tool call. Thinking is a setting of the gateway, so the
	// options of the caller take precedence.
	ordered := len(r.Tools) > 0 && (r.Choice.Mode == ChoiceRequired || r.Choice.Mode == ChoiceTool)
	if r.Temperature == nil && b.TopP == nil && !ordered {
		m.think(&b, r.Messages)
	}
	return json.Marshal(b)
}

// think turns thinking on, if it is configured and possible. A model that thinks must find its thoughts before the
// calls whose results it gets. Calls of another model, or from before thinking was turned on, have no thoughts.
func (m *Anthropic) think(b *anthropicBody, messages []Message) {
	switch {
	case m.cfg.ThinkingTokens == 0 && !m.cfg.AdaptiveThinking || !thoughtThrough(messages):
	case m.cfg.AdaptiveThinking:
		b.Thinking = &anthropicThinking{Type: "adaptive", Display: "summarized"}
	default:
		b.MaxTokens += m.cfg.ThinkingTokens // the API counts both together
		b.Thinking = &anthropicThinking{Type: "enabled", Budget: m.cfg.ThinkingTokens}
	}
}

// thoughtThrough reports whether all calls of the current turn have thoughts that can be sent back.
func thoughtThrough(messages []Message) bool {
	for _, m := range messages[1+lastUser(messages):] {
		if len(m.ToolCalls) > 0 && len(thinkingBlocks(m.Thinking)) == 0 {
			return false
		}
	}
	return true
}

// turns translates a conversation. The API requires that roles alternate, and that all results of one message's calls
// are in the next message, where the user's text may follow. So consecutive messages of one role are merged.
func (a *Anthropic) turns(messages []Message) ([]anthropicMessage, error) {
	var out []anthropicMessage
	for _, m := range messages {
		role, blocks := RoleUser, []anthropicBlock(nil)
		switch m.Role {
		case RoleUser:
			var err error
			if blocks, err = userBlocks(m); err != nil {
				return nil, err
			}
		case RoleTool:
			blocks = append(blocks, a.resultBlock(m))
		case RoleAssistant:
			role, blocks = RoleAssistant, assistantBlocks(m)
		default:
			return nil, fmt.Errorf("a message of the role %q", m.Role)
		}
		if len(blocks) == 0 { // an interrupted answer without text
			continue
		}
		if last := len(out) - 1; last >= 0 && out[last].Role == role {
			out[last].Content = append(out[last].Content, blocks...)
			continue
		}
		out = append(out, anthropicMessage{Role: role, Content: blocks})
	}
	return out, nil
}

// textBlocks returns a text as a block. It returns none for blank text, because the API rejects it.
func textBlocks(text string) []anthropicBlock {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	return []anthropicBlock{{Type: "text", Text: text}}
}

// resultBlock translates a result. A failed result has text only, because the API accepts no images there.
func (a *Anthropic) resultBlock(m Message) anthropicBlock {
	content := textBlocks(m.Content)
	switch {
	case len(m.Pictures) == 0:
	case !a.images || m.Failed:
		content = append(content, textBlocks(noteUnseen)...)
	default:
		for _, p := range m.Pictures {
			content = append(content, imageBlock(p.MIMEType, p.base64()))
		}
	}
	return anthropicBlock{
		Type: "tool_result", ToolUseID: cleanID(m.ToolCallID), Content: content, IsError: m.Failed,
	}
}

// assistantBlocks returns the blocks of a model's message. Thoughts without calls are dropped: later turns ignore them.
func assistantBlocks(m Message) []anthropicBlock {
	var blocks []anthropicBlock
	if len(m.ToolCalls) > 0 {
		blocks = thinkingBlocks(m.Thinking)
	}
	blocks = append(blocks, textBlocks(m.Content)...)
	for _, c := range m.ToolCalls {
		blocks = append(blocks, anthropicBlock{
			Type: "tool_use", ID: cleanID(c.ID), Name: cleanName(c.Name), Input: objectArgs(c.Args),
		})
	}
	return blocks
}

// thinkingBlocks returns the thoughts that the vendor signed. The API would reject others.
func thinkingBlocks(thoughts []Thought) []anthropicBlock {
	var blocks []anthropicBlock
	for _, t := range thoughts {
		switch {
		case t.Redacted != "":
			blocks = append(blocks, anthropicBlock{Type: "redacted_thinking", Data: t.Redacted})
		case t.Signature != "" && !isReasoning(t):
			blocks = append(blocks, anthropicBlock{Type: "thinking", Thinking: &t.Text, Signature: t.Signature})
		}
	}
	return blocks
}

// anthropicEvent is one event of a stream of Anthropic's Messages API.
type anthropicEvent struct {
	Type    lenientString `json:"type"`
	Index   lenientInt    `json:"index"`
	Message struct {
		Usage anthropicUsage `json:"usage"`
	} `json:"message"`
	ContentBlock anthropicPiece `json:"content_block"` // the start of a block
	Delta        anthropicPiece `json:"delta"`
	Usage        anthropicUsage `json:"usage"`
}

type anthropicUsage struct {
	Input         lenientInt `json:"input_tokens"`
	CacheRead     lenientInt `json:"cache_read_input_tokens"`
	CacheCreation lenientInt `json:"cache_creation_input_tokens"`
	Output        lenientInt `json:"output_tokens"`
}

// anthropicPiece is a piece of a block of any type.
type anthropicPiece struct {
	Type        lenientString   `json:"type"`
	Text        lenientString   `json:"text"`
	Thinking    lenientString   `json:"thinking"`
	Signature   lenientString   `json:"signature"`
	Data        lenientString   `json:"data"`
	ID          lenientString   `json:"id"`
	Name        lenientString   `json:"name"`
	Input       json.RawMessage `json:"input"`
	PartialJSON lenientString   `json:"partial_json"`
	StopReason  lenientString   `json:"stop_reason"`
}

// anthropicStream builds an answer from the events of a stream.
type anthropicStream struct {
	m    *Anthropic
	a    *answer
	open map[int64]*block // by index; the size limit of the answer bounds their number
}

type block struct {
	thought *thought
	call    *call
	input   json.RawMessage // of the call, if it arrived in one piece
}

// read is the reader. An answer is complete when its stop reason has arrived. Only closing events follow.
func (s *anthropicStream) read(e ssereader.Event) error {
	switch {
	case e.Name == "error":
		return s.m.reportedIn(e.Data)
	case e.Name == "" || len(e.Data) == 0: // the vendor names all of its events
		return nil
	}
	var event anthropicEvent
	if err := decode(e.Data, &event); err != nil {
		return err
	}
	switch event.Type {
	case "message_start":
		s.count(event.Message.Usage)
	case "message_delta":
		s.count(event.Usage)
		if event.Delta.StopReason != "" {
			s.a.stop = stopOf(string(event.Delta.StopReason))
		}
	case "content_block_start":
		return s.begin(int64(event.Index), event.ContentBlock)
	case "content_block_delta":
		return s.goOn(int64(event.Index), event.Delta)
	case "content_block_stop":
		return s.end(int64(event.Index))
	}
	return nil
}

// count stores the token counts of an event. Counts are cumulative. The second event may omit the input.
func (s *anthropicStream) count(u anthropicUsage) {
	if sum := u.Input + u.CacheRead + u.CacheCreation; sum > 0 {
		s.a.usage.Input = int(sum)
	}
	if u.Output > 0 {
		s.a.usage.Output = int(u.Output)
	}
}

func (s *anthropicStream) begin(index int64, start anthropicPiece) error {
	bl := &block{}
	s.open[index] = bl
	var err error
	switch start.Type {
	case "text":
		if err = s.a.grow(callOverhead); err == nil {
			err = s.a.addText(string(start.Text))
		}
	case "thinking":
		if bl.thought, err = s.a.newThought(); err == nil {
			bl.thought.signature.WriteString(string(start.Signature))
			err = s.a.addThinking(bl.thought, string(start.Thinking))
		}
	case "redacted_thinking":
		if bl.thought, err = s.a.newThought(); err == nil {
			bl.thought.redacted = string(start.Data)
			err = s.a.grow(len(start.Data))
		}
	case "tool_use":
		bl.input = start.Input
		bl.call, err = s.a.newCall(string(start.ID), string(start.Name))
	default: // server tools, which the gateway does not request
		delete(s.open, index)
	}
	return err
}

func (s *anthropicStream) goOn(index int64, d anthropicPiece) error {
	bl := s.open[index]
	switch {
	case bl == nil:
		return nil
	case d.Type == "text_delta":
		return s.a.addText(string(d.Text))
	case d.Type == "thinking_delta" && bl.thought != nil:
		return s.a.addThinking(bl.thought, string(d.Thinking))
	case d.Type == "signature_delta" && bl.thought != nil:
		bl.thought.signature.WriteString(string(d.Signature))
		return s.a.grow(len(d.Signature))
	case d.Type == "input_json_delta" && bl.call != nil:
		return s.a.addArgs(bl.call, string(d.PartialJSON))
	}
	return nil
}

// end closes a block. Some servers send the input of a call in one piece, with its start.
func (s *anthropicStream) end(index int64) error {
	bl := s.open[index]
	delete(s.open, index)
	if bl == nil || bl.call == nil || bl.call.args.Len() > 0 || len(bl.input) == 0 {
		return nil
	}
	return s.a.addArgs(bl.call, string(bl.input))
}

func stopOf(reason string) StopReason {
	switch reason {
	case "tool_use":
		return StopToolCalls
	case "max_tokens", "model_context_window_exceeded":
		return StopLength
	case "refusal":
		return StopRefusal
	}
	return StopEnd
}

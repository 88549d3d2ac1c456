package provider

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/farhand/farhand/internal/ssereader"
)

// OpenAI is a model behind the chat completions API of OpenAI or of a compatible server, such as vLLM.
type OpenAI struct {
	caller
	newLimit bool // the server expects max_completion_tokens
	official bool // the server is OpenAI's own
	images   bool // the model sees images that tools return
}

var _ Model = (*OpenAI)(nil)

// NewOpenAI returns the model. Configuration errors are returned by Generate. No environment variable is read.
func NewOpenAI(cfg Config) *OpenAI {
	base := cmp.Or(cfg.BaseURL, "https://api.openai.com/v1")
	m := &OpenAI{}
	m.caller = newCaller(cfg, m, base, "chat/completions")
	m.official, m.newLimit = hosted(base)
	m.images = isSet(cfg.Images, m.newLimit)
	if cfg.APIKey != "" {
		m.header.Set("Authorization", "Bearer "+cfg.APIKey)
	}
	return m
}

// hosted returns whether a base URL is OpenAI's own, and whether the server knows max_completion_tokens. OpenAI's own
// models, also on Azure, reject max_tokens (reasoning models) or deprecate it. Most other servers know only max_tokens,
// and ignore or reject max_completion_tokens. An ignored limit is the worst outcome, so max_completion_tokens is sent
// only where it is known.
func hosted(baseURL string) (official, newLimit bool) {
	u, err := url.Parse(baseURL)
	if err != nil {
		return false, false
	}
	host := u.Hostname()
	official = host == "api.openai.com" || strings.HasSuffix(host, ".api.openai.com") // regions have their own hosts
	return official, official || strings.HasSuffix(host, ".openai.azure.com")
}

// reader implements vendor.
// Vendor returns the name of the vendor, or of the format, by the semantic conventions of GenAI.
func (m *OpenAI) Vendor() string { return "openai" }

func (m *OpenAI) reader(a *answer) func(ssereader.Event) error { return openAIStream{m, a}.read }

// openAIBody is the body of a chat completions request. Its fields are defined in the vendor's reference.
type openAIBody struct {
	Model         string          `json:"model"`
	Messages      []openAIMessage `json:"messages,omitempty"`
	Stream        bool            `json:"stream"`
	StreamOptions openAIStreaming `json:"stream_options"`
	Tools         []openAITool    `json:"tools,omitempty"`
	ToolChoice    any             `json:"tool_choice,omitempty"` // a string, or an openAITool
	MaxTokens     int             `json:"max_tokens,omitempty"`
	MaxCompletion int             `json:"max_completion_tokens,omitempty"`
	Temperature   *float64        `json:"temperature,omitempty"`
	Stop          []string        `json:"stop,omitempty"`
	Format        *openAIFormat   `json:"response_format,omitempty"`
	Options
}

type openAIStreaming struct {
	IncludeUsage bool `json:"include_usage"`
}

// openAIMessage is a message of any role.
type openAIMessage struct {
	Role       Role             `json:"role"`
	Content    any              `json:"content,omitempty"` // a *string, or []openAIPart
	ToolCalls  []openAIToolCall `json:"tool_calls,omitempty"`
	ToolCallID *string          `json:"tool_call_id,omitempty"`

	// At most one of these is set: the field that the server uses.
	ReasoningContent string `json:"reasoning_content,omitempty"`
	Reasoning        string `json:"reasoning,omitempty"`
}

type openAIPart struct {
	Type  string  `json:"type"`
	Text  *string `json:"text,omitempty"`
	Image *Image  `json:"image_url,omitempty"`
}

type openAIToolCall struct {
	ID       string             `json:"id"`
	Type     string             `json:"type"`
	Function openAICallFunction `json:"function"`
}

type openAICallFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// openAITool is a tool, or a tool choice by name.
type openAITool struct {
	Type     string `json:"type"`
	Function Tool   `json:"function"`
}

type openAIFormat struct {
	Type   string  `json:"type"`
	Schema *Format `json:"json_schema,omitempty"`
}

// openAIChunk is one event of a stream of chat completions.
type openAIChunk struct {
	Error   json.RawMessage `json:"error"`
	Choices []openAIChoice  `json:"choices"`
	Usage   struct {
		PromptTokens     lenientInt `json:"prompt_tokens"`
		CompletionTokens lenientInt `json:"completion_tokens"`
		PromptDetails    struct {
			Cached lenientInt `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
}

type openAIChoice struct {
	Index        lenientInt    `json:"index"`
	Delta        openAIDelta   `json:"delta"`
	FinishReason lenientString `json:"finish_reason"`
}

type openAIDelta struct {
	Content   lenientString `json:"content"`
	Refusal   lenientString `json:"refusal"`
	ToolCalls []openAICall  `json:"tool_calls"`

	// Extensions of DeepSeek, and of vLLM, OpenRouter and others. If both are sent, they are equal.
	ReasoningContent json.RawMessage `json:"reasoning_content"`
	Reasoning        json.RawMessage `json:"reasoning"`
}

// openAICall is a piece of a tool call.
type openAICall struct {
	Index    *lenientInt   `json:"index"` // nil: the server gave none
	ID       lenientString `json:"id"`
	Function struct {
		Name lenientString `json:"name"`
		Args lenientString `json:"arguments"`
	} `json:"function"`
}

// reasoning returns the reasoning in a delta, and the name of its field. Both are empty if there is none.
func (d openAIDelta) reasoning() (field, text string) {
	for i, raw := range []json.RawMessage{d.ReasoningContent, d.Reasoning} {
		if json.Unmarshal(raw, &text) == nil && text != "" {
			return reasoningFields[i], text
		}
	}
	return "", ""
}

// openAIStream builds an answer from the events of a stream.
type openAIStream struct {
	m *OpenAI
	a *answer
}

// read is the reader. An answer is complete when its finish reason has arrived, because some servers omit the
// final [DONE]. If the connection breaks after that, only the usage is lost.
func (s openAIStream) read(e ssereader.Event) error {
	if bytes.HasPrefix(e.Data, []byte("[DONE]")) {
		return io.EOF
	}
	var chunk openAIChunk
	err := decode(e.Data, &chunk)
	if e.Name == "error" || len(chunk.Error) > 0 && string(chunk.Error) != "null" {
		return s.m.reportedIn(e.Data)
	}
	if err != nil {
		return err
	}
	if u := chunk.Usage; u.PromptTokens > 0 || u.CompletionTokens > 0 {
		s.a.usage = Usage{
			Input: int(u.PromptTokens), Output: int(u.CompletionTokens), Cached: int(u.PromptDetails.Cached),
		}
	}
	if len(chunk.Choices) == 0 || chunk.Choices[0].Index != 0 {
		return nil
	}
	return s.readChoice(chunk.Choices[0])
}

func (s openAIStream) readChoice(c openAIChoice) error {
	if err := s.readReasoning(c.Delta); err != nil {
		return err
	}
	if err := s.a.addText(string(c.Delta.Content)); err != nil {
		return err
	}
	refusal := string(c.Delta.Refusal)
	if err := s.a.say(refusal, Delta{Refusal: refusal}); err != nil {
		return err
	}
	s.a.refused = s.a.refused || refusal != ""
	for _, call := range c.Delta.ToolCalls {
		if err := s.a.addCall(call); err != nil {
			return err
		}
	}
	return s.readFinish(string(c.FinishReason))
}

// maxName is the maximum length of a name that arrives in pieces, in bytes. No tool name is that long.
const maxName = 256

// addCall adds a piece to its call. As specified, index identifies the call, and id and name come once, with the first
// piece. Servers differ. Some give no index, or the same index for all calls, each in one piece with its own id. Some
// repeat id and name with every piece. Some use another id for every piece, but name the tool only once. Some give no
// id at all.
func (a *answer) addCall(d openAICall) error {
	id, name, args := string(d.ID), string(d.Function.Name), string(d.Function.Args)
	c := a.callOf(d.Index, id, name)
	if c == nil {
		var err error
		if c, err = a.newCall(id, name); err != nil {
			return err
		}
		c.index = d.Index
		return a.addArgs(c, args)
	}
	c.id = cmp.Or(c.id, id)
	if name != c.name && c.args.Len() == 0 && len(c.name) < maxName { // a name may arrive in pieces
		c.name += name
	}
	if err := a.grow(len(id) + len(name)); err != nil {
		return err
	}
	return a.addArgs(c, args)
}

// callOf returns the call that a piece continues. It returns nil if the piece starts a new call.
func (a *answer) callOf(index *lenientInt, id, name string) *call {
	var c *call
	for _, same := range slices.Backward(a.calls) { // from the last one: an index may be reused
		if index != nil && same.index != nil && *same.index == *index || index == nil && id != "" && same.id == id {
			c = same
			break
		}
	}
	if c == nil && index == nil && len(a.calls) > 0 {
		c = a.calls[len(a.calls)-1]
	}
	switch {
	case c == nil || name == "": // every call has a name, so a piece without one continues a call
		return c
	case id != "" && c.id != "" && id == c.id:
		return c
	case id != "" && (c.id != "" || c.name != ""), c.extent.closed:
		return nil
	}
	return c
}

// readReasoning stores the name of the field, where the server expects the reasoning back, as the signature.
func (s openAIStream) readReasoning(d openAIDelta) error {
	field, text := d.reasoning()
	if text == "" {
		return nil
	}
	if len(s.a.thoughts) == 0 {
		t, err := s.a.newThought()
		if err != nil {
			return err
		}
		t.signature.WriteString(field)
	}
	return s.a.addThinking(s.a.thoughts[0], text)
}

func (s openAIStream) readFinish(reason string) error {
	switch reason {
	case "":
	case "tool_calls", "function_call":
		s.a.stop = StopToolCalls
	case "length":
		s.a.stop = StopLength
	case "content_filter":
		s.a.stop = StopRefusal
	case "insufficient_system_resource", "error": // DeepSeek, OpenRouter: the answer is incomplete
		return s.m.refused(http.StatusInternalServerError, "the answer was abandoned: "+reason, 0)
	default:
		if s.a.stop = StopEnd; s.a.refused {
			s.a.stop = StopRefusal
		}
	}
	return nil
}

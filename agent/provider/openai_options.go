package provider

import (
	"encoding/json"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"
)

// addOptions passes on what a caller asks of the answer. Chat completions know all of it; a server that does not know a field says
// so, or it is not one of chat completions.
func addOptions(p *openai.ChatCompletionNewParams, r Request) {
	o := r.Options
	setFloat(&p.TopP, o.TopP)
	setFloat(&p.PresencePenalty, o.PresencePenalty)
	setFloat(&p.FrequencyPenalty, o.FrequencyPenalty)
	if o.Seed != nil {
		p.Seed = openai.Int(*o.Seed)
	}
	p.LogitBias, p.Metadata = o.LogitBias, o.Metadata
	p.ReasoningEffort = shared.ReasoningEffort(o.Effort)
	p.Verbosity = openai.ChatCompletionNewParamsVerbosity(o.Verbosity)
	p.ServiceTier = openai.ChatCompletionNewParamsServiceTier(o.ServiceTier)
	setString(&p.User, o.User)
	setString(&p.SafetyIdentifier, o.SafetyIdentifier)
	setString(&p.PromptCacheKey, o.CacheKey)
	if o.Format != nil {
		p.ResponseFormat = openAIFormat(o.Format)
	}
	if len(r.Tools) == 0 { // the server refuses what is about tools where there are none
		return
	}
	if o.Parallel != nil {
		p.ParallelToolCalls = openai.Bool(*o.Parallel)
	}
	switch r.Choice.Mode {
	case ChoiceTool:
		p.ToolChoice = openai.ToolChoiceOptionFunctionToolChoice(openai.ChatCompletionNamedToolChoiceFunctionParam{Name: r.Choice.Name})
	case ChoiceRequired, ChoiceNone:
		p.ToolChoice.OfAuto = openai.String(string(r.Choice.Mode))
	}
}

func openAIFormat(f *Format) openai.ChatCompletionNewParamsResponseFormatUnion {
	if f.Schema == nil {
		return openai.ChatCompletionNewParamsResponseFormatUnion{OfJSONObject: &shared.ResponseFormatJSONObjectParam{}}
	}
	// The SDK's own type would take the schema apart into a map, and lose the order in which it was written.
	schema := param.Override[shared.ResponseFormatJSONSchemaJSONSchemaParam](struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Schema      json.RawMessage `json:"schema"`
		Strict      *bool           `json:"strict,omitempty"`
	}{f.Name, f.Description, f.Schema, f.Strict})
	return openai.ChatCompletionNewParamsResponseFormatUnion{OfJSONSchema: &shared.ResponseFormatJSONSchemaParam{JSONSchema: schema}}
}

// openAIUser translates what a user says.
func openAIUser(m Message) openai.ChatCompletionMessageParamUnion {
	if len(m.Parts) == 0 {
		return openai.UserMessage(m.Content)
	}
	parts := make([]openai.ChatCompletionContentPartUnionParam, len(m.Parts))
	for i, p := range m.Parts {
		if p.Image == nil {
			parts[i] = openai.TextContentPart(p.Text)
			continue
		}
		parts[i] = openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: p.Image.URL, Detail: p.Image.Detail})
	}
	return openai.UserMessage(parts)
}

func setFloat(to *param.Opt[float64], from *float64) {
	if from != nil {
		*to = openai.Float(*from)
	}
}

func setString(to *param.Opt[string], from string) {
	if from != "" {
		*to = openai.String(from)
	}
}

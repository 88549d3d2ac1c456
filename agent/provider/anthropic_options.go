package provider

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"
)

// addAnthropicOptions translates what Anthropic's messages have a word for, and names what they have not. What asks for
// nothing (a penalty of zero, the default tier) is taken.
func addAnthropicOptions(p *anthropic.MessageNewParams, r Request) error {
	o := r.Options
	for name, asked := range map[string]bool{
		"seed": o.Seed != nil, "logit_bias": len(o.LogitBias) > 0, "verbosity": o.Verbosity != "", "metadata": len(o.Metadata) > 0,
		"prompt_cache_key":  o.CacheKey != "",
		"presence_penalty":  o.PresencePenalty != nil && *o.PresencePenalty != 0,
		"frequency_penalty": o.FrequencyPenalty != nil && *o.FrequencyPenalty != 0,
		"service_tier":      !slices.Contains([]string{"", "auto", "default"}, o.ServiceTier),
	} {
		if asked {
			return unoffered{param: name}
		}
	}
	if o.TopP != nil && *o.TopP != 1 {
		p.TopP = anthropic.Float(*o.TopP)
	}
	if user := o.User; user != "" || o.SafetyIdentifier != "" {
		if o.SafetyIdentifier != "" {
			user = o.SafetyIdentifier
		}
		p.Metadata.UserID = anthropic.String(user)
	}
	if err := addOutput(p, o); err != nil {
		return err
	}
	addChoice(p, r)
	return nil
}

func addOutput(p *anthropic.MessageNewParams, o Options) error {
	switch o.Effort {
	case "", "low", "medium", "high", "xhigh":
		p.OutputConfig.Effort = anthropic.OutputConfigEffort(o.Effort)
	default:
		return unoffered{"reasoning_effort", "must be low, medium, high or xhigh for its provider"}
	}
	switch {
	case o.Format == nil:
	case o.Format.Schema == nil:
		return unoffered{"response_format", "must be of the type json_schema for its provider"}
	default:
		p.OutputConfig.Format = param.Override[anthropic.JSONOutputFormatParam](struct {
			Type   string          `json:"type"`
			Schema json.RawMessage `json:"schema"`
		}{"json_schema", o.Format.Schema})
	}
	return nil
}

// addChoice says whether tools are to be called, and how many at once.
func addChoice(p *anthropic.MessageNewParams, r Request) {
	if len(r.Tools) == 0 {
		return
	}
	var one param.Opt[bool]
	if r.Options.Parallel != nil {
		one = anthropic.Bool(!*r.Options.Parallel)
	}
	switch r.Choice.Mode {
	case ChoiceNone:
		p.ToolChoice.OfNone = &anthropic.ToolChoiceNoneParam{}
	case ChoiceRequired:
		p.ToolChoice.OfAny = &anthropic.ToolChoiceAnyParam{DisableParallelToolUse: one}
	case ChoiceTool:
		p.ToolChoice.OfTool = &anthropic.ToolChoiceToolParam{Name: r.Choice.Name, DisableParallelToolUse: one}
	default:
		if one.Valid() {
			p.ToolChoice.OfAuto = &anthropic.ToolChoiceAutoParam{DisableParallelToolUse: one}
		}
	}
}

// userBlocks translates what a user says.
func userBlocks(m Message) ([]anthropic.ContentBlockParamUnion, error) {
	if len(m.Parts) == 0 {
		return textBlocks(m.Content), nil
	}
	var blocks []anthropic.ContentBlockParamUnion
	for _, p := range m.Parts {
		switch {
		case p.Image == nil:
			blocks = append(blocks, textBlocks(p.Text)...)
		case p.Image.Detail != "" && p.Image.Detail != "auto":
			return nil, unoffered{param: "image_url.detail"}
		case strings.HasPrefix(p.Image.URL, "data:"):
			kind, data, ok := strings.Cut(strings.TrimPrefix(p.Image.URL, "data:"), ";base64,")
			if !ok {
				return nil, unoffered{"image_url.url", "must be an address, or data in base64, for its provider"}
			}
			blocks = append(blocks, anthropic.NewImageBlockBase64(kind, data))
		default:
			blocks = append(blocks, anthropic.NewImageBlock(anthropic.URLImageSourceParam{URL: p.Image.URL}))
		}
	}
	return blocks, nil
}

package provider

import (
	"cmp"
	"slices"
	"strings"
)

// addOptions translates what Anthropic's messages have a word for, and names what they have not. What asks for
// nothing (a penalty of zero, the default tier) is taken.
func (b *anthropicBody) addOptions(r Request) error {
	o := r.Options
	for name, asked := range map[string]bool{
		"seed": o.Seed != nil, "logit_bias": len(o.LogitBias) > 0, "verbosity": o.Verbosity != "",
		"metadata":          len(o.Metadata) > 0,
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
		b.TopP = o.TopP
	}
	b.Metadata.UserID = cmp.Or(o.SafetyIdentifier, o.User)
	if err := b.addOutput(o); err != nil {
		return err
	}
	b.addChoice(r)
	return nil
}

func (b *anthropicBody) addOutput(o Options) error {
	switch o.Effort {
	case "", "low", "medium", "high", "xhigh":
		b.OutputConfig.Effort = o.Effort
	default:
		return unoffered{"reasoning_effort", "must be low, medium, high or xhigh for its provider"}
	}
	switch {
	case o.Format == nil:
	case o.Format.Schema == nil:
		return unoffered{"response_format", "must be of the type json_schema for its provider"}
	default:
		b.OutputConfig.Format = &anthropicFormat{Type: "json_schema", Schema: o.Format.Schema}
	}
	return nil
}

// addChoice says whether tools are to be called, and how many at once.
func (b *anthropicBody) addChoice(r Request) {
	if len(r.Tools) == 0 {
		return
	}
	var one *bool
	if r.Options.Parallel != nil {
		disabled := !*r.Options.Parallel
		one = &disabled
	}
	switch r.Choice.Mode {
	case ChoiceNone:
		b.ToolChoice = &anthropicChoice{Type: "none"}
	case ChoiceRequired:
		b.ToolChoice = &anthropicChoice{Type: "any", DisableParallel: one}
	case ChoiceTool:
		b.ToolChoice = &anthropicChoice{Type: "tool", Name: r.Choice.Name, DisableParallel: one}
	default:
		if one != nil {
			b.ToolChoice = &anthropicChoice{Type: "auto", DisableParallel: one}
		}
	}
}

// userBlocks translates what a user says.
func userBlocks(m Message) ([]anthropicBlock, error) {
	if len(m.Parts) == 0 {
		return textBlocks(m.Content), nil
	}
	var blocks []anthropicBlock
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
			source := &anthropicSource{Type: "base64", MediaType: &kind, Data: &data}
			blocks = append(blocks, anthropicBlock{Type: "image", Source: source})
		default:
			source := &anthropicSource{Type: "url", URL: p.Image.URL}
			blocks = append(blocks, anthropicBlock{Type: "image", Source: source})
		}
	}
	return blocks, nil
}

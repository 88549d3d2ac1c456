package openai

import (
	"encoding/json"
	"strings"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/api/internal/jsonbody"
	"github.com/farhand/farhand/registry"
)

const (
	maxStops       = 4 // as at OpenAI
	maxTemperature = 2
)

// request is the body of a request for a completion. Each field is obeyed, passed on to the model, or refused by its
// name. None is ignored.
type request struct {
	completion   chat.Completion // without Key, Caller and Turn; Model as it was sent
	user         string
	stream       bool
	includeUsage bool
}

// parseRequest reads the body of a request for a completion.
func parseRequest(body []byte) (request, error) {
	var r request
	if strings.TrimSpace(string(body)) == "" {
		return r, registry.Errorf(registry.CodeInvalidRequest, "The body is empty.")
	}
	if err := jsonbody.Check(body); err != nil {
		return r, err
	}
	f, err := readFields(body, "")
	if err != nil {
		return r, err
	}
	for _, read := range []func(fields) error{
		refuseUnoffered, r.readModel, r.readMessages, r.readTools, r.readToolChoice, r.readSampling, r.readStop,
		r.readOptions, r.readFormat, r.readStreaming,
	} {
		if err := read(f); err != nil {
			return r, err
		}
	}
	return r, nil
}

func (r *request) readModel(f fields) (err error) {
	if r.completion.Model, err = f.str("model", "model"); err != nil {
		return err
	}
	if r.completion.Model == "" {
		return badParam("model",
			"You must provide a model parameter: a name of GET /v1/models, or %q for the default.", defaultModel)
	}
	r.user, err = f.str("user", "user")
	return err
}

func (r *request) readStreaming(f fields) (err error) {
	if r.stream, err = f.flag("stream", "stream"); err != nil {
		return err
	}
	text, ok := f["stream_options"]
	if !ok {
		return nil
	}
	options, err := readFields(text, "stream_options")
	if err == nil {
		err = options.only("stream_options", "include_usage", "include_obfuscation")
	}
	if err != nil {
		return err
	}
	if on, err := options.flag("include_obfuscation", "stream_options.include_obfuscation"); err != nil || on {
		return badParam("stream_options.include_obfuscation", "Padding of streams is not offered.")
	}
	r.includeUsage, err = options.flag("include_usage", "stream_options.include_usage")
	return err
}

func (r *request) readSampling(f fields) (err error) {
	c := &r.completion
	if c.MaxTokens, err = f.count("max_tokens", "max_tokens"); err != nil {
		return err
	}
	newer, err := f.count("max_completion_tokens", "max_completion_tokens")
	if err != nil {
		return err
	}
	if newer > 0 {
		c.MaxTokens = newer
	}
	c.Temperature, err = f.number("temperature", 0, maxTemperature)
	return err
}

// readStop reads one sequence or several.
func (r *request) readStop(f fields) error {
	text, ok := f["stop"]
	if !ok {
		return nil
	}
	var one string
	if json.Unmarshal(text, &one) == nil {
		r.completion.Stop = []string{one}
	} else if json.Unmarshal(text, &r.completion.Stop) != nil {
		return badParam("stop", "The field \"stop\" must be a string or an array of strings.")
	}
	if len(r.completion.Stop) > maxStops {
		return badParam("stop", "At most %d sequences may be given in \"stop\".", maxStops)
	}
	for _, s := range r.completion.Stop {
		if s == "" {
			return badParam("stop", "A sequence in \"stop\" must not be empty.")
		}
	}
	return nil
}

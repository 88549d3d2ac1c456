package api

import (
	"encoding/json"
	"strings"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/registry"
)

const (
	maxStops       = 4 // as at OpenAI
	maxTemperature = 2
)

// completionRequest is the body of a request for a completion. Of what clients send, these are used; what would change
// the answer and is not offered here is refused, and everything else is ignored.
type completionRequest struct {
	completion   chat.Completion // without Key, Caller and Turn; Model as it was sent
	user         string
	stream       bool
	includeUsage bool
	noTools      bool // tool_choice none: not the caller's tools and not the device's
}

// parseCompletion reads the body of a request for a completion.
func parseCompletion(body []byte) (completionRequest, error) {
	var r completionRequest
	if strings.TrimSpace(string(body)) == "" {
		return r, registry.Errorf(registry.CodeInvalidRequest, "The body is empty.")
	}
	if err := checkJSON(body); err != nil {
		return r, err
	}
	f, err := readFields(body, "")
	if err != nil {
		return r, err
	}
	for _, read := range []func(fields) error{
		refuseUnoffered, r.readModel, r.readMessages, r.readTools, r.readToolChoice, r.readSampling, r.readStop, r.readStreaming,
	} {
		if err := read(f); err != nil {
			return r, err
		}
	}
	return r, nil
}

// refuseUnoffered refuses what a client would miss in the answer.
func refuseUnoffered(f fields) error {
	if text, ok := f["n"]; ok && string(text) != "1" {
		return badParam("n", "Only one choice is made: leave \"n\" out, or let it be 1.")
	}
	for _, name := range []string{"functions", "function_call"} {
		if _, ok := f[name]; ok {
			return badParam(name, "The field %q is not offered. Use \"tools\" and \"tool_choice\".", name)
		}
	}
	text, ok := f["response_format"]
	if !ok {
		return nil
	}
	format, err := readFields(text, "response_format")
	if err != nil {
		return err
	}
	if kind, err := format.str("type", "response_format.type"); err != nil || kind != "text" {
		return badParam("response_format", "Only the response_format {\"type\":\"text\"} is offered.")
	}
	return nil
}

func (r *completionRequest) readModel(f fields) (err error) {
	if r.completion.Model, err = f.str("model", "model"); err != nil {
		return err
	}
	if r.completion.Model == "" {
		return badParam("model", "You must provide a model parameter: a name of GET /v1/models, or %q for the default.", modelDefault)
	}
	r.user, err = f.str("user", "user")
	return err
}

func (r *completionRequest) readStreaming(f fields) (err error) {
	if r.stream, err = f.flag("stream", "stream"); err != nil {
		return err
	}
	text, ok := f["stream_options"]
	if !ok {
		return nil
	}
	options, err := readFields(text, "stream_options")
	if err != nil {
		return err
	}
	r.includeUsage, err = options.flag("include_usage", "stream_options.include_usage")
	return err
}

func (r *completionRequest) readSampling(f fields) (err error) {
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
	text, ok := f["temperature"]
	if !ok {
		return nil
	}
	var t float64
	if json.Unmarshal(text, &t) != nil || t < 0 || t > maxTemperature {
		return badParam("temperature", "The field \"temperature\" must be a number from 0 to %d.", maxTemperature)
	}
	c.Temperature = &t
	return nil
}

// readStop reads one sequence or several.
func (r *completionRequest) readStop(f fields) error {
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

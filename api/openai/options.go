package openai

import (
	"encoding/json"
	"regexp"

	"github.com/farhand/farhand/agent/provider"
)

// requestFields are the fields that are read, and those that are refused unless they ask for nothing.
var requestFields = []string{
	"model", "messages", "tools", "tool_choice", "stream", "stream_options", "max_tokens", "max_completion_tokens",
	"temperature", "stop", "user", "response_format", "parallel_tool_calls", "top_p", "presence_penalty",
	"frequency_penalty", "seed", "logit_bias",
	"reasoning_effort", "verbosity", "service_tier", "safety_identifier", "prompt_cache_key", "metadata",
	"n", "functions", "function_call", "logprobs", "top_logprobs", "store", "modalities",
}

// refuseUnoffered refuses fields that Farhand does not offer, and whose effect a client would miss.
func refuseUnoffered(f fields) error {
	for _, name := range []string{"functions", "function_call"} {
		if _, ok := f[name]; ok {
			return badParam(name, "The field %q is not offered. Use \"tools\" and \"tool_choice\".", name)
		}
	}
	for name, nothing := range map[string]string{
		"n": `1`, "logprobs": `false`, "top_logprobs": `0`, "store": `false`, "modalities": `["text"]`,
	} {
		if text, ok := f[name]; ok && string(text) != nothing {
			return badParam(name, "The field %q is not offered: leave it out, or let it be %s.", name, nothing)
		}
	}
	if _, ok := f["messages"]; !ok { // which says more than an unknown field
		return nil
	}
	return f.only("", requestFields...)
}

// noTools reports whether no tool is to run. That includes the device's tools.
func (r *request) noTools() bool { return r.completion.Choice.Mode == provider.ChoiceNone }

// readOptions reads the options that are passed on to the model as they are.
func (r *request) readOptions(f fields) (err error) {
	o := &r.completion.Options
	o.User = r.user
	for _, n := range []struct {
		name        string
		least, most float64
		to          **float64
	}{
		{"top_p", 0, 1, &o.TopP},
		{"presence_penalty", -2, 2, &o.PresencePenalty},
		{"frequency_penalty", -2, 2, &o.FrequencyPenalty},
	} {
		if *n.to, err = f.number(n.name, n.least, n.most); err != nil {
			return err
		}
	}
	for name, to := range map[string]*string{
		"reasoning_effort": &o.Effort, "verbosity": &o.Verbosity, "service_tier": &o.ServiceTier,
		"safety_identifier": &o.SafetyIdentifier, "prompt_cache_key": &o.CacheKey,
	} {
		if *to, err = f.str(name, name); err != nil {
			return err
		}
	}
	if o.Parallel, err = f.optionalFlag("parallel_tool_calls", "parallel_tool_calls"); err != nil {
		return err
	}
	if text, ok := f["seed"]; ok && json.Unmarshal(text, &o.Seed) != nil {
		return badParam("seed", "The field \"seed\" must be a whole number.")
	}
	if text, ok := f["logit_bias"]; ok && json.Unmarshal(text, &o.LogitBias) != nil {
		return badParam("logit_bias", "The field \"logit_bias\" must be an object of whole numbers by token.")
	}
	if text, ok := f["metadata"]; ok && json.Unmarshal(text, &o.Metadata) != nil {
		return badParam("metadata", "The field \"metadata\" must be an object of strings.")
	}
	return nil
}

var formatName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// readFormat reads the format of the answer.
func (r *request) readFormat(f fields) error {
	text, ok := f["response_format"]
	if !ok {
		return nil
	}
	format, err := readFields(text, "response_format")
	if err != nil {
		return err
	}
	kind, err := format.str("type", "response_format.type")
	switch {
	case err != nil:
		return err
	case kind == "text":
		return nil
	case kind == "json_object":
		r.completion.Options.Format = &provider.Format{}
		return nil
	case kind != "json_schema":
		return badParam("response_format.type",
			"The type of \"response_format\" must be text, json_object or json_schema.")
	}
	r.completion.Options.Format, err = readSchema(format["json_schema"], "response_format.json_schema")
	return err
}

func readSchema(text json.RawMessage, at string) (*provider.Format, error) {
	f, err := readFields(text, at)
	if err != nil {
		return nil, err
	}
	if err := f.only(at, "name", "description", "schema", "strict"); err != nil {
		return nil, err
	}
	var format provider.Format
	if format.Name, err = f.str("name", at+".name"); err == nil && !formatName.MatchString(format.Name) {
		err = badParam(at+".name", "The name of a schema must match %s.", formatName)
	}
	if err != nil {
		return nil, err
	}
	if format.Description, err = f.str("description", at+".description"); err != nil {
		return nil, err
	}
	if format.Schema = f["schema"]; len(format.Schema) == 0 || format.Schema[0] != '{' {
		return nil, badParam(at+".schema", "%s must be a JSON Schema object.", named(at+".schema"))
	}
	format.Strict, err = f.optionalFlag("strict", at+".strict")
	return &format, err
}

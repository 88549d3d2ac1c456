// Package openai implements OpenAI's API at /v1, so that its clients work unchanged. It parses requests for chat
// completions, runs their turns, and writes answers, streams, models and errors in OpenAI's format. The tools of a
// connected device are added to a completion and run by the gateway. The caller runs its own tools and sends their
// results in the next request, which continues the conversation.
//
//	body ─▶ ParseRequest ─▶ Request.Open: model, session ─▶ Completion.Answer or Completion.Stream
//
// Package api has the routes (v1.go) and handles all that applies to every request: bodies, bounds and deadlines. This
// package imports agent, registry and api/internal. Start with completions.go; errors.go has the errors.
package openai

import (
	"regexp"
	"slices"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/api/wire"
)

const (
	// Prefix begins every path whose clients expect OpenAI's format.
	Prefix = "/v1/"

	// HeaderSession names the session whose tools are added to a completion.
	HeaderSession = "X-Farhand-Session"

	// HeaderRetry tells clients of OpenAI's API whether to retry automatically. It overrides their decision by status.
	HeaderRetry = "X-Should-Retry"
)

// defaultModel is an alias of the default model. Clients can use it without knowing the model's name.
const defaultModel = "farhand"

func modelOf(name string) wire.Model {
	return wire.Model{ID: name, Object: "model", OwnedBy: "farhand"}
}

// configuredModel returns the configured name of a model. The first model is the default.
func configuredModel(all []string, name string) (string, error) {
	switch {
	case slices.Contains(all, name):
		return name, nil
	case name == defaultModel && len(all) > 0:
		return all[0], nil
	default:
		return "", unknownModel(name)
	}
}

// ListModels returns the answer that lists models, to be encoded as JSON.
func ListModels(all []string) any {
	list := wire.ModelList{Object: "list", Data: make([]wire.Model, len(all))}
	for i, name := range all {
		list.Data[i] = modelOf(name)
	}
	return list
}

// GetModel returns the answer that describes one model, to be encoded as JSON.
func GetModel(all []string, name string) (any, error) {
	name, err := configuredModel(all, name)
	return modelOf(name), err
}

// requestFields lists the fields that are read, and those that are rejected unless they have no effect.
var requestFields = []string{
	"model", "messages", "tools", "tool_choice", "stream", "stream_options", "max_tokens", "max_completion_tokens",
	"temperature", "stop", "user", "response_format", "parallel_tool_calls", "top_p", "presence_penalty",
	"frequency_penalty", "seed", "logit_bias",
	"reasoning_effort", "verbosity", "service_tier", "safety_identifier", "prompt_cache_key", "metadata",
	"n", "functions", "function_call", "logprobs", "top_logprobs", "store", "modalities",
}

// refuseUnoffered rejects unsupported fields whose effect a client would miss.
func refuseUnoffered(f fields) {
	for _, name := range []string{"functions", "function_call"} {
		if f.has(name) {
			f.fail(name, "The field %q is not offered. Use \"tools\" and \"tool_choice\".", name)
		}
	}
	for name, nothing := range map[string]string{
		"n": `1`, "logprobs": `false`, "top_logprobs": `0`, "store": `false`, "modalities": `["text"]`,
	} {
		if f.has(name) && string(f.members[name]) != nothing {
			f.fail(name, "The field %q is not offered: leave it out, or let it be %s.", name, nothing)
		}
	}
	if f.has("messages") { // a missing "messages" is a more useful error
		f.only(requestFields...)
	}
}

// noTools reports whether no tool may run, including the device's tools.
func (r *Request) noTools() bool { return r.completion.Choice.Mode == provider.ChoiceNone }

// readOptions reads the options that are passed to the model unchanged.
func (r *Request) readOptions(f fields) {
	o := &r.completion.Options
	o.User = r.user
	o.TopP = f.number("top_p", 0, 1)
	o.PresencePenalty = f.number("presence_penalty", -2, 2)
	o.FrequencyPenalty = f.number("frequency_penalty", -2, 2)
	o.Effort, o.Verbosity, o.ServiceTier = f.str("reasoning_effort"), f.str("verbosity"), f.str("service_tier")
	o.SafetyIdentifier, o.CacheKey = f.str("safety_identifier"), f.str("prompt_cache_key")
	o.Parallel = f.flag("parallel_tool_calls")
	f.decode("seed", &o.Seed, "a whole number")
	f.decode("logit_bias", &o.LogitBias, "an object of whole numbers by token")
	f.decode("metadata", &o.Metadata, "an object of strings")
}

var formatName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// readFormat reads the format of the answer.
func (r *Request) readFormat(f fields) {
	if !f.has("response_format") {
		return
	}
	format := f.object("response_format")
	switch format.str("type") {
	case "text":
	case "json_object":
		r.completion.Options.Format = &provider.Format{}
	case "json_schema":
		r.completion.Options.Format = readSchema(format.object("json_schema"))
	default:
		format.fail("type", "The type of \"response_format\" must be text, json_object or json_schema.")
	}
}

func readSchema(f fields) *provider.Format {
	f.only("name", "description", "schema", "strict")
	format := provider.Format{Name: f.str("name"), Schema: f.members["schema"]}
	if !formatName.MatchString(format.Name) {
		f.fail("name", "The name of a schema must match %s.", formatName)
	}
	format.Description = f.str("description")
	if len(format.Schema) == 0 || format.Schema[0] != '{' {
		f.fail("schema", "%s must be a JSON Schema object.", named(f.path("schema")))
	}
	format.Strict = f.flag("strict")
	return &format
}

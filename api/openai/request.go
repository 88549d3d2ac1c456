package openai

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/api/internal/jsonbody"
	"github.com/farhand/farhand/registry"
)

const (
	maxStops       = 4 // as at OpenAI
	maxTemperature = 2
)

// Request is the body of a request for a completion. Each field is applied, passed to the model, or rejected by its
// name. None is ignored.
type Request struct {
	completion   chat.Completion // without Key, Caller and Turn; Model as it was sent
	user         string
	stream       bool
	includeUsage bool
}

// ParseRequest parses the body of a request for a completion.
func ParseRequest(body []byte) (Request, error) {
	var r Request
	if strings.TrimSpace(string(body)) == "" {
		return r, registry.Errorf(registry.CodeInvalidRequest, "The body is empty.")
	}
	if err := jsonbody.Check(body); err != nil {
		return r, err
	}
	var failed error
	f := readFields(body, "", &failed)
	for _, read := range []func(fields){
		refuseUnoffered, r.readModel, r.readMessages, r.readTools, r.readToolChoice, r.readSampling, r.readStop,
		r.readOptions, r.readFormat, r.readStreaming,
	} {
		if read(f); failed != nil {
			break
		}
	}
	return r, failed
}

func (r *Request) Streamed() bool { return r.stream }

func (r *Request) readModel(f fields) {
	if r.completion.Model = f.str("model"); r.completion.Model == "" {
		f.fail("model",
			"You must provide a model parameter: a name of GET /v1/models, or %q for the default.", defaultModel)
	}
	r.user = f.str("user")
}

func (r *Request) readStreaming(f fields) {
	f.decode("stream", &r.stream, "true or false")
	if !f.has("stream_options") {
		return
	}
	options := f.object("stream_options")
	options.only("include_usage", "include_obfuscation")
	if options.has("include_obfuscation") && string(options.members["include_obfuscation"]) != "false" {
		options.fail("include_obfuscation", "Stream padding is not supported.")
	}
	options.decode("include_usage", &r.includeUsage, "true or false")
}

func (r *Request) readSampling(f fields) {
	c := &r.completion
	c.MaxTokens = f.count("max_tokens")
	c.MaxTokens = cmp.Or(f.count("max_completion_tokens"), c.MaxTokens)
	c.Temperature = f.number("temperature", 0, maxTemperature)
}

func (r *Request) readStop(f fields) {
	var one string
	if json.Unmarshal(f.members["stop"], &one) == nil {
		r.completion.Stop = []string{one}
	} else {
		f.decode("stop", &r.completion.Stop, "a string or an array of strings")
	}
	if len(r.completion.Stop) > maxStops {
		f.fail("stop", "At most %d sequences may be given in \"stop\".", maxStops)
	}
	if slices.Contains(r.completion.Stop, "") {
		f.fail("stop", "A sequence in \"stop\" must not be empty.")
	}
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
			f.fail(name, "The field %q is not supported. Use \"tools\" and \"tool_choice\".", name)
		}
	}
	for name, nothing := range map[string]string{
		"n": `1`, "logprobs": `false`, "top_logprobs": `0`, "store": `false`, "modalities": `["text"]`,
	} {
		if f.has(name) && string(f.members[name]) != nothing {
			f.fail(name, "The field %q is not supported: leave it out, or set it to %s.", name, nothing)
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
	if !modelToolName.MatchString(format.Name) {
		f.fail("name", "The name of a schema must match %s.", modelToolName)
	}
	format.Description = f.str("description")
	if len(format.Schema) == 0 || format.Schema[0] != '{' {
		f.fail("schema", "%s must be a JSON Schema object.", named(f.path("schema")))
	}
	format.Strict = f.flag("strict")
	return &format
}

// maxCallerTools is the maximum number of a caller's tools, as at OpenAI.
const maxCallerTools = 128

// anyParameters is the default schema of a tool.
const anyParameters = `{"type":"object","properties":{}}`

// modelToolName is what names of tools and schemas must match.
var modelToolName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func (r *Request) readTools(f fields) {
	all := f.list("tools", "an array")
	if len(all) > maxCallerTools {
		f.fail("tools", "At most %d tools may be given.", maxCallerTools)
	}
	seen := make(map[string]bool, len(all))
	for one := range f.objects("tools", all) {
		t := readTool(one)
		if seen[t.Name] {
			one.fail("function.name", "The tool %q appears twice.", t.Name)
		}
		seen[t.Name] = true
		r.completion.Tools = append(r.completion.Tools, t)
	}
}

func readTool(f fields) (t provider.Tool) {
	if f.kind() != "function" {
		f.fail("type", "Only tools of the type \"function\" are supported.")
	}
	f = f.object("function")
	if t.Name = f.str("name"); !modelToolName.MatchString(t.Name) {
		f.fail("name", "The name of a tool must match %s.", modelToolName)
	}
	t.Description, t.Strict = f.str("description"), f.flag("strict")
	t.Parameters = json.RawMessage(anyParameters)
	if f.has("parameters") {
		if t.Parameters = f.members["parameters"]; t.Parameters[0] != '{' {
			f.fail("parameters", "%s must be a JSON Schema object.", named(f.path("parameters")))
		}
	}
	return t
}

// readToolChoice reads whether tools must or may be called. The choice "none" also disables the device's tools.
func (r *Request) readToolChoice(f fields) {
	text := f.members["tool_choice"]
	c := &r.completion.Choice
	switch string(text) {
	case "", `"auto"`:
		return
	case `"none"`:
		c.Mode, r.completion.Tools = provider.ChoiceNone, nil
		return
	case `"required"`:
		c.Mode = provider.ChoiceRequired
		return
	}
	if text[0] != '{' {
		f.fail("tool_choice", "The field \"tool_choice\" must be none, auto, required, or name a function.")
		return
	}
	choice := f.object("tool_choice")
	if choice.kind() != "function" {
		choice.fail("", "Only tools of the type \"function\" can be chosen.")
	}
	function := choice.object("function")
	c.Mode, c.Name = provider.ChoiceTool, function.str("name")
	if c.Name == "" {
		function.fail("name", "The name of the function is missing.")
	}
}

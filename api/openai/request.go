package openai

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/api/internal/jsonbody"
	"github.com/farhand/farhand/registry"
)

const (
	maxStops       = 4 // as at OpenAI
	maxTemperature = 2
)

// Request is the body of a request for a completion. Each field is obeyed, passed on to the model, or refused by its
// name. None is ignored.
type Request struct {
	completion   chat.Completion // without Key, Caller and Turn; Model as it was sent
	user         string
	stream       bool
	includeUsage bool
}

// ParseRequest reads the body of a request for a completion.
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

// Streamed reports whether the answer is to be streamed.
func (r *Request) Streamed() bool { return r.stream }

func (r *Request) readModel(f fields) {
	if r.completion.Model = f.str("model"); r.completion.Model == "" {
		f.fail("model",
			"You must provide a model parameter: a name of GET /v1/models, or %q for the default.", defaultModel)
	}
	r.user = f.str("user")
}

func (r *Request) readStreaming(f fields) {
	r.stream = f.isSet("stream")
	if !f.has("stream_options") {
		return
	}
	options := f.object("stream_options")
	options.only("include_usage", "include_obfuscation")
	if options.has("include_obfuscation") && string(options.members["include_obfuscation"]) != "false" {
		options.fail("include_obfuscation", "Padding of streams is not offered.")
	}
	r.includeUsage = options.isSet("include_usage")
}

func (r *Request) readSampling(f fields) {
	c := &r.completion
	c.MaxTokens = f.count("max_tokens")
	c.MaxTokens = cmp.Or(f.count("max_completion_tokens"), c.MaxTokens)
	c.Temperature = f.number("temperature", 0, maxTemperature)
}

// readStop reads one sequence or several.
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

package provider_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/provider"
)

var update = flag.Bool("update", false, "rewrite the golden requests of testdata")

// sentRequest is a request as it goes over the wire. Headers that describe the client are left out.
type sentRequest struct {
	Method string            `json:"method"`
	URL    string            `json:"url"`
	Header map[string]string `json:"header"`
	Body   json.RawMessage   `json:"body"`
}

// goldenModels are the configurations whose requests differ.
var goldenModels = map[string]func(*http.Client) provider.Model{
	"openai": func(c *http.Client) provider.Model {
		return provider.NewOpenAI(provider.Config{Name: "gpt", APIKey: key, MaxTokens: 9, HTTPClient: c})
	},
	"compatible": func(c *http.Client) provider.Model {
		return provider.NewOpenAI(provider.Config{Name: "llama", BaseURL: "http://localhost:11434/v1/", MaxTokens: 9,
			HTTPClient: c})
	},
	"compatible-images": func(c *http.Client) provider.Model {
		return provider.NewOpenAI(provider.Config{Name: "llava", BaseURL: "http://localhost:11434/v1/",
			Images: ptr(true), HTTPClient: c})
	},
	"anthropic": func(c *http.Client) provider.Model {
		return provider.NewAnthropic(provider.Config{Name: "claude", APIKey: key, HTTPClient: c})
	},
	"anthropic-thinking": func(c *http.Client) provider.Model {
		return provider.NewAnthropic(provider.Config{
			Name: "claude", BaseURL: "https://proxy.example.org/anthropic/v1/", ThinkingTokens: 2000, HTTPClient: c,
		})
	},
	"anthropic-adaptive": func(c *http.Client) provider.Model {
		return provider.NewAnthropic(provider.Config{Name: "claude", APIKey: key, AdaptiveThinking: true,
			HTTPClient: c})
	},
}

// goldenRequests use every field of a Request.
func goldenRequests() map[string]provider.Request {
	tools := []provider.Tool{
		{Name: "camera", Description: "Takes <one> picture & says \"click\".", Strict: ptr(false),
			Parameters: json.RawMessage(
				`{"type": "object", "properties": {"z": {"type": "string"}, "a": {"const": 12345678901234567890}}}`)},
		{Name: "bare"},
		{Name: "choice", Parameters: json.RawMessage(`{"oneOf":[{"required":["a"]}],"description":"One."}`)},
	}
	offered := func(c provider.Choice, parallel *bool) provider.Request {
		r := ask("hi")
		r.Tools, r.Choice, r.Options.Parallel = tools, c, parallel
		return r
	}
	formatted := func(f provider.Format) provider.Request {
		r := ask("hi")
		r.Options.Format = &f
		return r
	}
	bounded := ask("hi")
	bounded.System, bounded.MaxTokens, bounded.Temperature, bounded.Stop = "Be brief.", 77, ptr(0.5),
		[]string{"END", "\n"}
	hollow := ask("hi")
	hollow.Stop, hollow.Options.Metadata, hollow.Options.LogitBias = []string{}, map[string]string{}, map[string]int64{}
	common := ask("hi")
	common.Options = provider.Options{TopP: ptr(0.25), PresencePenalty: ptr(0.0), Effort: "low", User: "ann"}
	identified := ask("hi")
	identified.Options = provider.Options{User: "ann", SafetyIdentifier: "a1", TopP: ptr(1.0), ServiceTier: "default"}
	return map[string]provider.Request{
		"plain":         ask("hi"),
		"nothing said":  ask(""),
		"nothing in it": hollow,
		"silent thought": {Messages: []provider.Message{user("look"), {
			Role: provider.RoleAssistant, Thinking: []provider.Thought{{Signature: "c2ln"}},
			ToolCalls: []provider.ToolCall{{ID: "one", Name: "camera"}},
		}, {Role: provider.RoleTool, ToolCallID: "one", Content: "a cat"}}},
		"empty":          {},
		"characters":     ask("K\u00f6ln \U0001f389 <b>&amp;</b>\u2028\xff\x00\t\"\\"),
		"bounded":        bounded,
		"common options": common,
		"identified":     identified,
		"every option":   optioned(),
		"tools":          offered(provider.Choice{}, nil),
		"one at a time":  offered(provider.Choice{}, ptr(false)),
		"required":       offered(provider.Choice{Mode: provider.ChoiceRequired}, ptr(true)),
		"required, free": offered(provider.Choice{Mode: provider.ChoiceRequired}, nil),
		"no call":        offered(provider.Choice{Mode: provider.ChoiceNone}, ptr(true)),
		"named":          offered(provider.Choice{Mode: provider.ChoiceTool, Name: "bare"}, ptr(false)),
		"any object":     formatted(provider.Format{}),
		"schema": formatted(provider.Format{Name: "trip", Description: "A trip.",
			Schema: json.RawMessage(`{"type": "object"}`)}),
		"images": {Messages: []provider.Message{{Role: provider.RoleUser, Content: "this? or this?",
			Parts: []provider.Part{
				{Text: "this?"}, {Image: &provider.Image{URL: "data:image/png;base64,iVBORw0KGgo="}},
				{Text: "or this?"},
				{Image: &provider.Image{URL: "https://example.com/cat.png", Detail: "auto"}}, {Text: " "},
			}}}},
		"detail": {Messages: []provider.Message{{Role: provider.RoleUser, Parts: []provider.Part{
			{Image: &provider.Image{URL: "https://example.com/cat.png", Detail: "low"}},
		}}}},
		"conversation": {Messages: goldenConversation(), Tools: tools},
		"after it": {Messages: append(goldenConversation(),
			provider.Message{Role: provider.RoleAssistant, Content: "Done."}, user("and?"))},
		"pictures": {Messages: append(picturedConversation(),
			provider.Message{Role: provider.RoleAssistant, Content: "Cats."}, user("and?"))},
		"pictures last": {Messages: picturedConversation()},
		"greeting":      {Messages: []provider.Message{{Role: provider.RoleAssistant, Content: "Hello."}, user("hi")}},
	}
}

// picturedConversation has results with images: two of them, none, and of a call that failed.
func picturedConversation() []provider.Message {
	ids := []string{"one", "two", "three"}
	asked := provider.Message{Role: provider.RoleAssistant}
	messages := []provider.Message{user("look")}
	var results []provider.Message
	for i, id := range ids {
		asked.ToolCalls = append(asked.ToolCalls, provider.ToolCall{ID: id, Name: "camera"})
		m := provider.Message{Role: provider.RoleTool, ToolCallID: id, ToolName: "camera", Content: "click"}
		if i != 1 {
			m.Failed = i == 2
			m.Pictures = []provider.Picture{{MIMEType: "image/png", Data: []byte("\x89PNG")},
				{MIMEType: "image/webp", Data: []byte{0, 0xff}, Attachment: 1}}
		}
		results = append(results, m)
	}
	return append(append(messages, asked), results...)
}

func goldenConversation() []provider.Message {
	call := func(thoughts ...provider.Thought) provider.Message {
		return provider.Message{Role: provider.RoleAssistant, Content: "Looking.", Thinking: thoughts,
			ToolCalls: []provider.ToolCall{
				{ID: "one", Name: "camera", Args: `{"side": "front"}`},
				{ID: "functions.two:0", Name: "no such.tool!", Args: "not JSON"},
			}}
	}
	results := []provider.Message{
		{Role: provider.RoleTool, ToolCallID: "one", ToolName: "camera", Content: "a cat"},
		{Role: provider.RoleTool, ToolCallID: "functions.two:0", ToolName: "no such.tool!", Failed: true},
	}
	out := append([]provider.Message{user("look"), call()}, results...)
	out = append(out, provider.Message{Role: provider.RoleAssistant, Interrupted: true}, user("again"))
	out = append(out, call(provider.Thought{Text: "Both.", Signature: "c2ln"}, provider.Thought{Redacted: "cmVk"}))
	out = append(out, results...)
	out = append(out, call(provider.Thought{Text: "I ", Signature: "reasoning"},
		provider.Thought{Text: "see", Signature: "reasoning"}))
	return append(out, results...)
}

// The vendors get, byte for byte in their JSON values, what their own SDKs sent: the golden files were recorded with
// openai-go v3.95.0 and anthropic-sdk-go v1.84.0, all but "pictures", which follow the vendors' references.
func TestRequestsAreThoseOfTheSDKs(t *testing.T) {
	t.Parallel()
	for vendor, model := range goldenModels {
		t.Run(vendor, func(t *testing.T) {
			t.Parallel()
			got := map[string]sentRequest{}
			for name, r := range goldenRequests() {
				if sent := record(t, model, r); sent != nil {
					got[name] = *sent
				}
			}
			file := filepath.Join("testdata", "requests", vendor+".json")
			if *update {
				writeGolden(t, file, got)
			}
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var want map[string]sentRequest
			if err := json.Unmarshal(raw, &want); err != nil {
				t.Fatal(err)
			}
			if have, need := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(have, need) {
				t.Errorf("requests %q, want %q", have, need)
			}
			for name, w := range want {
				if g := got[name]; canonical(t, g) != canonical(t, w) {
					t.Errorf("%s: sent\n%s\nwant\n%s", name, canonical(t, g), canonical(t, w))
				}
			}
		})
	}
}

// record returns the request that is sent; nil: none, because the vendor has no word for it.
func record(t *testing.T, model func(*http.Client) provider.Model, r provider.Request) *sentRequest {
	t.Helper()
	var sent *sentRequest
	_, _ = model(&http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		sent = &sentRequest{Method: r.Method, URL: r.URL.String(), Header: map[string]string{}, Body: body}
		for name, values := range r.Header {
			if !strings.HasPrefix(name, "X-Stainless-") && name != "User-Agent" {
				sent.Header[name] = strings.Join(values, ", ")
			}
		}
		return &http.Response{StatusCode: 400, Request: r, Body: io.NopCloser(strings.NewReader("recorded"))}, nil
	})}).Generate(deadline(t), r, nil)
	return sent
}

// writeGolden writes one request a line.
func writeGolden(t *testing.T, file string, requests map[string]sentRequest) {
	t.Helper()
	out := []byte("{\n")
	for i, name := range slices.Sorted(maps.Keys(requests)) {
		request, err := json.Marshal(requests[name])
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			out = append(out, ",\n"...)
		}
		out = fmt.Appendf(out, "%q: %s", name, request)
	}
	if err := os.WriteFile(file, append(out, "\n}\n"...), 0o644); err != nil {
		t.Fatal(err)
	}
}

// canonical is a request whose JSON has sorted members. Numbers stay as they are written.
func canonical(t *testing.T, r sentRequest) string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(r.Body))
	d.UseNumber()
	var body any
	if err := d.Decode(&body); err != nil && len(r.Body) > 0 {
		t.Fatal(err)
	}
	out, err := json.MarshalIndent(map[string]any{"method": r.Method, "url": r.URL, "header": r.Header, "body": body},
		"", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

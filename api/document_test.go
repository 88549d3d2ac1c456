package api_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/farhand/farhand/registry"
)

func TestDocumentIsConsistent(t *testing.T) {
	c := theContract()
	for name := range c.doc["components"].(object)["schemas"].(object) {
		if _, err := c.compile("#/components/schemas/" + name); err != nil {
			t.Errorf("schema %s: %v", name, err)
		}
	}
	used := make(map[string]bool)
	var walk func(any)
	walk = func(node any) {
		switch n := node.(type) {
		case object:
			if ref, ok := n["$ref"].(string); ok {
				used[ref] = true
				if c.resolve(n) == nil {
					t.Errorf("%s leads nowhere", ref)
				}
			}
			for _, child := range n {
				walk(child)
			}
		case []any:
			for _, child := range n {
				walk(child)
			}
		}
	}
	walk(c.doc)
	for kind, entries := range c.doc["components"].(object) {
		for name := range entries.(object) {
			if ref := "#/components/" + kind + "/" + name; !used[ref] && kind != "securitySchemes" {
				// A status that only undocumented requests get (wrong method, wrong path) needs no operation.
				if kind != "responses" || name != "405" {
					t.Errorf("%s is not used", ref)
				}
			}
		}
	}
	operations := make(map[string]bool)
	for _, p := range c.paths {
		for method, op := range p.item {
			if method == "parameters" {
				continue
			}
			op := op.(object)
			if id := op["operationId"].(string); operations[id] {
				t.Errorf("operationId %s is used twice", id)
			} else {
				operations[id] = true
			}
			inPath := c.parameters(p.item, op, "path")
			for _, m := range regexp.MustCompile(`\{([a-z]+)\}`).FindAllStringSubmatch(p.template, -1) {
				if !slices.Contains(inPath, m[1]) {
					t.Errorf("%s %s: path parameter %s is not described", method, p.template, m[1])
				}
			}
		}
	}
	codes := c.doc["components"].(object)["schemas"].(object)["ErrorCode"].(object)["enum"].([]any)
	if len(codes) != len(registry.Codes()) {
		t.Errorf("%d codes documented, %d exist", len(codes), len(registry.Codes()))
	}
}

// TestRequestSchemaAgrees holds the documented request against what the API takes and refuses.
func TestRequestSchemaAgrees(t *testing.T) {
	schema, err := theContract().compile("#/components/schemas/CallRequest")
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(t, setup{})
	f.connect(0, session("s1"), echo, tools("t")...)
	for _, body := range []string{
		`{}`, `{"args":{}}`, `{"args":{"a":[1,null]}}`, `{"timeout_ms":1000}`, `{"mode":"sync"}`, `{"select":"any"}`,
		`{"select":"newest"}`, `{"target":{}}`, `{"target":{"session_id":"s1"}}`, `{"target":{"labels":{}}}`,
		`{"args":[]}`, `{"args":null}`, `{"args":1}`, `{"timeout_ms":0}`, `{"timeout_ms":"1"}`, `{"timeout_ms":1.5}`,
		`{"mode":"async"}`, `{"mode":"later"}`, `{"mode":1}`, `{"select":""}`, `{"select":"first"}`,
		`{"target":null}`, `{"target":{"x":1}}`,
		`{"target":{"session_id":""}}`, `{"target":{"labels":{"a":1}}}`, `{"idempotency_key":"k"}`,
		`{"idempotency_key":""}`,
		`{"idempotency_key":"a b"}`, `{"idempotency_key":"ü"}`, `{"idempotency_key":1}`, `{"arg":{}}`, `[]`, `null`,
	} {
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		documented := schema.Validate(value) == nil
		if got := f.post("/api/tools/t/call", body); (got.status/100 == 2) != documented {
			t.Errorf("%s: documented as valid: %v, answered %d", body, documented, got.status)
		}
	}
}

// TestMessageSchemaAgrees does the same for messages.
func TestMessageSchemaAgrees(t *testing.T) {
	agrees(t, talking(t, oneTurn()), "MessageRequest", messagesOfS1,
		`{"content":"a"}`, `{"content":""}`, `{"content":1}`, `{"content":null}`, `{"regenerate":true}`,
		`{"content":"a","regenerate":false}`, `{"content":"a","regenerate":1}`,
		`{"content":"a","debug":true}`, `{"content":"a","debug":"true"}`, `{"content":"a","stream":false}`,
		`{"content":"a","stream":null}`,
		`{"content":"a","results":"plain"}`, `{"content":"a","results":"html"}`,
		`{"content":"a","context":"group sandboxed"}`, `{"content":"a","context":"friends"}`,
		`{"content":"a","model":"m"}`, `[]`, `null`)
}

// TestMessageIsContentOrRegenerate: this rule the document tells in words. A schema that says it makes generators of
// clients give up, or offer a union where one type is meant.
func TestMessageIsContentOrRegenerate(t *testing.T) {
	f := talking(t, oneTurn())
	for _, body := range []string{`{}`, `{"regenerate":false}`, `{"content":"a","regenerate":true}`} {
		if got := f.post(messagesOfS1, body); got.status != http.StatusBadRequest {
			t.Errorf("%s: answered %d: %s", body, got.status, got.body)
		}
	}
}

// TestExamplesAreValid: each example satisfies its schema, and what clients send and read most has one.
func TestExamplesAreValid(t *testing.T) {
	c := theContract()
	found := make(map[string]bool)
	for name, node := range c.doc["components"].(object)["schemas"].(object) {
		examples, _ := node.(object)["examples"].([]any)
		for i, example := range examples {
			found[name] = true
			schema, err := c.compile("#/components/schemas/" + name)
			if err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(example); err != nil {
				t.Errorf("example %d of %s: %v", i, name, err)
			}
		}
	}
	for _, name := range []string{
		"CallRequest", "CallAnswer", "CallAccepted", "CallRecord", "Problem", "MessageRequest", "ToolList",
		"CompletionRequest",
	} {
		if !found[name] {
			t.Errorf("%s has no example", name)
		}
	}
}

// TestCompletionSchemaAgrees does the same for completions, as far as a schema can say it.
func TestCompletionSchemaAgrees(t *testing.T) {
	const user = `{"role":"user","content":"hi"}`
	var bodies []string
	for _, messages := range []string{
		``, user, user + `,null`, `{"role":"user","content":[{"type":"text","text":"a"}]}`,
		`{"role":"user","content":[{"type":"input_audio"}]}`,
		`{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}]}`,
		`{"role":"robot","content":"a"}`, `{"content":"a"}`, `{"role":"user","content":1}`,
		`{"role":"user","content":"a","name":"b"}`,
	} {
		bodies = append(bodies, `{"model":"farhand","messages":[`+messages+`]}`)
	}
	for _, field := range []string{
		`"x":1`, `"n":1`, `"n":2`, `"n":null`, `"stream":false`, `"stream":1`, `"max_tokens":1`, `"max_tokens":0`,
		`"max_tokens":null`,
		`"max_completion_tokens":"1"`, `"temperature":2`, `"temperature":3`, `"stop":"a"`, `"stop":""`,
		`"stop":["a"]`, `"stop":[""]`,
		`"stop":["a","b","c","d","e"]`, `"user":"a"`, `"user":1`, `"tool_choice":"auto"`, `"tool_choice":"none"`,
		`"tool_choice":"required"`,
		`"response_format":{"type":"text"}`, `"response_format":{"type":"json_object"}`,
		`"stream_options":{"include_usage":true}`, `"stream_options":1`,
		`"tool_choice":{"type":"function","function":{"name":"a"}}`, `"tool_choice":{"type":"custom"}`,
		`"response_format":{"type":"xml"}`,
		`"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{},"strict":true}}`, `"top_p":1`,
		`"top_p":2`, `"seed":1`,
		`"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{},"grammar":true}}`,
		`"seed":"1"`, `"store":true`, `"logprobs":false`,
		`"logit_bias":{"1":-5}`, `"logit_bias":[]`, `"metadata":{"a":"b"}`, `"metadata":{"a":1}`,
		`"parallel_tool_calls":false`, `"audio":{}`,
		`"tools":[]`, `"tools":null`, `"tools":[{"type":"function","function":{"name":"a"}}]`,
		`"tools":[{"type":"function","function":{"name":"a.b"}}]`,
		`"tools":[{"type":"function"}]`, `"tools":[{"type":"x","function":{"name":"a"}}]`,
		`"tools":[{"type":"function","function":{"name":"a","parameters":[]}}]`,
	} {
		bodies = append(bodies, `{"model":"farhand","messages":[`+user+`],`+field+`}`)
	}
	agrees(t, talking(t, answering()), "CompletionRequest", completionsPath,
		append(bodies, `{"messages":[`+user+`]}`, `[]`, `null`)...)
}

// agrees checks that a route takes those of the bodies that its schema takes.
func agrees(t *testing.T, f *fleet, schema, path string, bodies ...string) {
	t.Helper()
	compiled, err := theContract().compile("#/components/schemas/" + schema)
	f.must(err)
	for _, body := range bodies {
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
		f.must(err)
		documented := compiled.Validate(value) == nil
		if got := f.post(path, body); (got.status/100 == 2) != documented {
			t.Errorf("%s: documented as valid: %v, answered %d: %s", body, documented, got.status, got.body)
		}
	}
}

func TestDocumentIsServed(t *testing.T) {
	f := newFleet(t, setup{})
	r := f.send(request{path: "/openapi.json", header: http.Header{"Authorization": nil}})
	doc := decode[struct {
		OpenAPI string
		Info    struct{ Version string }
	}](r, 200)
	if doc.OpenAPI != "3.1.0" || doc.Info.Version != "1.2.3" {
		t.Fatalf("got %+v", doc)
	}
	if !json.Valid(r.body) || r.header.Get("Etag") == "" {
		t.Fatal("the document has no ETag or is not JSON")
	}
}

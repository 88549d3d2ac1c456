package blackbox

import (
	"bytes"
	"fmt"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// document is the OpenAPI document that the fleet serves.
type document struct {
	members  map[string]any
	compiler *jsonschema.Compiler
}

const documentURL = "fleet:openapi"

// readDocument reads /openapi.json.
func (c *check) readDocument() *document {
	c.t.Helper()
	resp, err := c.http.Get(c.url + "/openapi.json")
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	read, err := jsonschema.UnmarshalJSON(resp.Body)
	members, _ := read.(map[string]any)
	if err != nil || resp.StatusCode != http.StatusOK || members["paths"] == nil {
		c.t.Fatalf("/openapi.json: %s, %v", resp.Status, err)
	}
	d := &document{members: members, compiler: jsonschema.NewCompiler()}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource(documentURL, read); err != nil {
		c.t.Fatal(err)
	}
	return d
}

// check says what in an answer is not documented: its status, its type, or its body. Streams are not read.
func (d *document) check(method, path string, a answer) (problem string) {
	operation := d.operation(method, path)
	if operation == nil {
		return "the path is not documented"
	}
	response := d.resolve(member(operation, "responses", strconv.Itoa(a.status)))
	if response == nil {
		return "the status is not documented"
	}
	content := member(response, "content")
	if len(content) == 0 {
		if len(a.body) > 0 {
			return "there is a body"
		}
		return ""
	}
	media, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
	schema := member(content, media, "schema")
	if schema == nil {
		return fmt.Sprintf("the type %q is not documented", media)
	}
	ref, isRef := schema["$ref"].(string)
	if !isRef {
		return ""
	}
	return d.validate(ref, a.body)
}

// validate says how JSON differs from a schema of the document.
func (d *document) validate(ref string, body []byte) (problem string) {
	schema, err := d.compiler.Compile(documentURL + ref)
	if err != nil {
		return err.Error()
	}
	read, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err.Error()
	}
	if err := schema.Validate(read); err != nil {
		return err.Error()
	}
	return ""
}

// operation returns what the document says of a request. Of two paths that fit, the one with fewer parameters counts.
func (d *document) operation(method, path string) map[string]any {
	path, _, _ = strings.Cut(path, "?")
	var fits []string
	for template := range member(d.members, "paths") {
		pattern := regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(regexp.QuoteMeta(template), `[^/]+`)
		if regexp.MustCompile("^" + pattern + "$").MatchString(path) {
			fits = append(fits, template)
		}
	}
	if len(fits) == 0 {
		return nil
	}
	best := slices.MinFunc(fits, func(a, b string) int { return strings.Count(a, "{") - strings.Count(b, "{") })
	return member(d.members, "paths", best, strings.ToLower(method))
}

// resolve follows a reference within the document.
func (d *document) resolve(node map[string]any) map[string]any {
	ref, isRef := node["$ref"].(string)
	if !isRef {
		return node
	}
	return member(d.members, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
}

// member returns the object at a path of names, or nil.
func member(at map[string]any, path ...string) map[string]any {
	for _, name := range path {
		at, _ = at[name].(map[string]any)
	}
	return at
}

package api_test

import (
	"bytes"
	"cmp"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/routing"
)

type object = map[string]any

// contract is the served OpenAPI document, read once, with every schema closed: a field that is not documented is as
// wrong as one of the wrong type.
type contract struct {
	doc      object
	compiler *jsonschema.Compiler
	paths    []documentedPath
}

type documentedPath struct {
	template string
	pattern  *regexp.Regexp
	item     object
}

var theContract = sync.OnceValue(loadContract)

const contractURL = "farhand:openapi"

func loadContract() *contract {
	policy, _ := agent.NewPolicy(agent.PolicyRules{})
	origins, _ := auth.NewOrigins(nil, false)
	store := memory.New(memory.Options{})
	handler, err := api.NewHandler(api.Config{
		Approvals: struct{ api.Approvals }{},
		Invoker:   agent.NewInvoker(agent.Config{Policy: policy}), Calls: (*routing.Calls)(nil), Directory: store,
		Conversations: store, AuditLog: store, Credentials: store, Usage: store,
		Kicker: (*routing.Hub)(nil), Turns: new(routing.Turns), Policy: policy,
		Auth: auth.Anonymous{}, Origins: origins,
	})
	if err != nil {
		panic(err)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi.json", nil))
	doc, err := jsonschema.UnmarshalJSON(w.Body)
	if err != nil {
		panic(err)
	}
	c := &contract{doc: doc.(object), compiler: jsonschema.NewCompiler()}
	closeSchemas(c.doc["components"].(object)["schemas"])
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	c.compiler.AssertFormat()
	if err := c.compiler.AddResource(contractURL, doc); err != nil {
		panic(err)
	}
	parameter := regexp.MustCompile(`\\\{[a-z]+\\\}`)
	for template, item := range c.doc["paths"].(object) {
		pattern := strings.ReplaceAll(regexp.QuoteMeta(template), `\{model\}`, `.*`) // may contain slashes
		pattern = strings.ReplaceAll(pattern, `\{path\}`, `.*`)
		pattern = parameter.ReplaceAllString(pattern, `[^/]+`)
		c.paths = append(c.paths, documentedPath{template, regexp.MustCompile("^" + pattern + "$"), item.(object)})
	}
	return c
}

func closeSchemas(node any) {
	switch n := node.(type) {
	case object:
		for _, child := range n {
			closeSchemas(child)
		}
		if _, ok := n["properties"].(object); ok && n["additionalProperties"] == nil && n["type"] == "object" {
			n["additionalProperties"] = false
		}
	case []any:
		for _, child := range n {
			closeSchemas(child)
		}
	}
}

// resolve follows a reference inside the document.
func (c *contract) resolve(node object) object {
	ref, ok := node["$ref"].(string)
	if !ok {
		return node
	}
	var at any = c.doc
	for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		at = at.(object)[part]
	}
	return at.(object)
}

func (c *contract) find(path string) (documentedPath, bool) {
	i := slices.IndexFunc(c.paths, func(p documentedPath) bool { return p.template == path })
	if i < 0 {
		i = slices.IndexFunc(c.paths, func(p documentedPath) bool { return p.pattern.MatchString(path) })
	}
	if i < 0 {
		return documentedPath{}, false
	}
	return c.paths[i], true
}

// parameters returns the names of an operation's parameters in one place (query, path, header).
func (c *contract) parameters(item, operation object, in string) []string {
	var names []string
	for _, from := range []object{item, operation} {
		list, _ := from["parameters"].([]any)
		for _, p := range list {
			if p := c.resolve(p.(object)); p["in"] == in {
				names = append(names, p["name"].(string))
			}
		}
	}
	slices.Sort(names)
	return names
}

// parametersInProse are those that the document describes in the text of their path only, because they make the answer
// that of another path.
var parametersInProse = map[string][]string{"/api/tools": {"view", "format"}}

// documentedAs returns the path whose answer the document describes for a request.
func documentedAs(u *url.URL) string {
	if u.Path != "/api/tools" {
		return u.Path
	}
	q := u.Query()
	as := u.Path + "/" + cmp.Or(q.Get("view"), q.Get("format"))
	if _, ok := theContract().find(as); ok {
		return as
	}
	return u.Path
}

// checkContract holds a response against the document. Every request of every test goes through it.
func checkContract(t *testing.T, req *http.Request, r reply) {
	t.Helper()
	if r.header.Get("X-Farhand-Pod") == "" {
		t.Errorf("%s %s: no X-Farhand-Pod", req.Method, req.URL.Path)
	}
	c := theContract()
	path, ok := c.find(documentedAs(req.URL))
	method := strings.ToLower(req.Method)
	if method == "head" {
		method = "get"
	}
	operation, has := path.item[method].(object)
	if !ok || !has {
		c.checkUndocumented(t, req, r)
		return
	}
	response, ok := operation["responses"].(object)[strconv.Itoa(r.status)].(object)
	if !ok {
		t.Errorf("%s %s: status %d is not documented: %s", req.Method, path.template, r.status, r.body)
		return
	}
	response = c.resolve(response)
	if r.status < 300 && strings.HasPrefix(path.template, "/api/") {
		for name := range req.URL.Query() {
			if slices.Contains(parametersInProse[req.URL.Path], name) {
				continue
			}
			if !slices.Contains(c.parameters(path.item, operation, "query"), name) {
				t.Errorf("%s %s: the parameter %q is accepted but not documented", req.Method, path.template, name)
			}
		}
	}
	documented := make(http.Header)
	headers, _ := response["headers"].(object)
	for name := range headers {
		documented.Set(name, "yes")
	}
	for _, name := range []string{
		"ETag", "Retry-After", "WWW-Authenticate", "Allow", "X-Farhand-Call-Id", "Location", "Idempotent-Replayed",
		"X-Should-Retry",
	} {
		if r.header.Get(name) != "" && documented.Get(name) == "" {
			t.Errorf("%s %s: %d has an undocumented header %s", req.Method, path.template, r.status, name)
		}
	}
	content, _ := response["content"].(object)
	if req.Method == http.MethodHead || len(content) == 0 {
		if len(r.body) > 0 {
			t.Errorf("%s %s: %d has a body: %s", req.Method, path.template, r.status, r.body)
		}
		return
	}
	if media, _, _ := mime.ParseMediaType(r.header.Get("Content-Type")); len(content) > 1 && content[media] != nil {
		content = object{media: content[media]}
	}
	for media, body := range content {
		schema := body.(object)["schema"].(object)
		c.checkBody(t, schema, media, r)
		if content, ok := schema["contentSchema"].(object); ok {
			c.checkEvents(t, content["$ref"].(string), r)
		}
	}
}

// checkUndocumented holds an answer to a request nobody may make against the format of errors at its path.
func (c *contract) checkUndocumented(t *testing.T, req *http.Request, r reply) {
	t.Helper()
	if !slices.Contains([]int{401, 403, 404, 405}, r.status) {
		t.Errorf("%s %s is not documented but answers %d", req.Method, req.URL.Path, r.status)
	}
	if strings.HasPrefix(req.URL.Path, "/v1/") {
		c.checkBody(t, object{"$ref": "#/components/schemas/OpenAIError"}, "application/json", r)
		return
	}
	c.checkBody(t, object{"$ref": "#/components/schemas/Problem"}, "application/problem+json", r)
}

func (c *contract) checkBody(t *testing.T, schema object, media string, r reply) {
	t.Helper()
	if got, _, _ := mime.ParseMediaType(r.header.Get("Content-Type")); got != media {
		t.Errorf("content type %q, want %s: %s", got, media, r.body)
		return
	}
	ref, ok := schema["$ref"].(string)
	if !ok || len(r.body) == 0 {
		return
	}
	if err := c.validate(ref, r.body); err != nil {
		t.Errorf("the body is not as documented: %v\n%s", err, r.body)
	}
}

func (c *contract) checkEvents(t *testing.T, ref string, r reply) {
	t.Helper()
	for _, e := range parseEvents(t, bytes.NewReader(r.body)) {
		if string(e.data) == "[DONE]" {
			continue
		}
		c.checkEvent(t, ref, e)
	}
}

func (c *contract) checkEvent(t *testing.T, ref string, e event) {
	t.Helper()
	if err := c.validate(ref, e.data); err != nil {
		t.Errorf("an event is not as documented: %v\n%s", err, e.data)
	}
}

func (c *contract) validate(ref string, text []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	compiled, err := c.compile(ref)
	if err != nil {
		return err
	}
	return compiled.Validate(value)
}

// compiling guards the compiler, which is not safe for concurrent use.
var compiling sync.Mutex

func (c *contract) compile(ref string) (*jsonschema.Schema, error) {
	compiling.Lock()
	defer compiling.Unlock()
	return c.compiler.Compile(contractURL + ref)
}

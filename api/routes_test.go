package api

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/registry"
)

// TestRoutesAreDocumented compares the route table with the document in both directions, query parameters included.
func TestRoutesAreDocumented(t *testing.T) {
	text, err := openAPI("test")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths      map[string]map[string]json.RawMessage
		Components struct {
			Parameters map[string]struct{ Name, In string }
		}
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	documented := make(map[string][]string)
	for path, item := range doc.Paths {
		for method, raw := range item {
			if method == "parameters" {
				continue
			}
			var op struct {
				Parameters []struct {
					Ref string `json:"$ref"`
				}
			}
			if err := json.Unmarshal(raw, &op); err != nil {
				t.Fatal(err)
			}
			query := []string{}
			for _, p := range op.Parameters {
				if c := doc.Components.Parameters[strings.TrimPrefix(p.Ref, "#/components/parameters/")]; c.In == "query" {
					query = append(query, c.Name)
				}
			}
			documented[strings.ToUpper(method)+" "+path] = query
		}
	}
	h := &handler{Config: Config{Device: http.NotFoundHandler()}}
	braces := regexp.MustCompile(`:([a-z]+)`)
	for _, r := range h.routes() {
		name := r.method + " " + braces.ReplaceAllString(r.path, "{$1}")
		query, ok := documented[name]
		if !ok {
			t.Errorf("%s is served but not documented", name)
			continue
		}
		delete(documented, name)
		slices.Sort(query)
		if takes := slices.Sorted(slices.Values(r.query)); !slices.Equal(query, takes) {
			t.Errorf("%s takes the parameters %v, the document says %v", name, takes, query)
		}
	}
	for name := range documented {
		t.Errorf("%s is documented but not served", name)
	}
}

// TestEveryCodeHasAProblem walks the whole vocabulary.
func TestEveryCodeHasAProblem(t *testing.T) {
	for _, code := range registry.Codes() {
		kind, ok := problemKinds[code]
		if !ok || kind.status < 400 || kind.title == "" {
			t.Errorf("%s has no status and title", code)
			continue
		}
		e := registry.Errorf(code, "say %s", code).With(registry.DispatchedNo)
		p := problemOf(e)
		if p.Code != code || p.Status != kind.status || p.Type != problemType+string(code) || p.Title != kind.title {
			t.Errorf("%s became %+v", code, p)
		}
		if p.Retryable == nil || *p.Retryable != e.Retryable() {
			t.Errorf("%s: retryable is wrong", code)
		}
		if hidden := p.Detail == internalDetail; hidden != (code == registry.CodeInternal) {
			t.Errorf("%s: detail %q", code, p.Detail)
		}
		_, waits := retryAfter(e)
		if should := kind.status == http.StatusTooManyRequests || kind.status == http.StatusServiceUnavailable; waits != should {
			t.Errorf("%s: Retry-After is %v", code, waits)
		}
	}
	if len(problemKinds) != len(registry.Codes()) {
		t.Errorf("%d problems for %d codes", len(problemKinds), len(registry.Codes()))
	}
	for _, e := range []*registry.Error{
		{Code: "not_owner", Message: "secret"}, {Code: "", Message: "secret"}, registry.AsError(http.ErrAbortHandler),
	} {
		if p := problemOf(e); p.Code != registry.CodeInternal || p.Detail != internalDetail || p.Status != 500 {
			t.Errorf("%v became %+v", e, p)
		}
	}
}

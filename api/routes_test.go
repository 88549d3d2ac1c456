package api

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/agent/blobs"
	"github.com/farhand/farhand/agent/wake"
	"github.com/farhand/farhand/registry/memory"
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
				if c := doc.Components.Parameters[strings.TrimPrefix(p.Ref,
					"#/components/parameters/")]; c.In == "query" {
					query = append(query, c.Name)
				}
			}
			documented[strings.ToUpper(method)+" "+path] = query
		}
	}
	h := &handler{Config: Config{
		Device: http.NotFoundHandler(), DeviceMCP: http.NotFoundHandler(), Metrics: http.NotFoundHandler(),
		DeviceNode: http.NotFoundHandler(), NodePath: "/ws/node",
		Pairing: &pairing.Service{}, Wakes: &wake.Service{},
		Files: &blobs.Service{}, Defaults: memory.New(memory.Options{}), Tenants: memory.New(memory.Options{}),
	}}
	braces := regexp.MustCompile(`[:*]([a-z]+)`)
	for _, r := range h.routes() {
		name := r.method + " " + braces.ReplaceAllString(r.path, "{$1}")
		query, ok := documented[name]
		if !ok {
			t.Errorf("%s is served but not documented", name)
			continue
		}
		delete(documented, name)
		if name == "GET /api/tools" { // in the text of the path: they make the answer that of another path
			query = append(query, "view", "format")
		}
		slices.Sort(query)
		if takes := slices.Sorted(slices.Values(r.query)); !slices.Equal(query, takes) {
			t.Errorf("%s takes the parameters %v, the document says %v", name, takes, query)
		}
	}
	for name := range documented {
		t.Errorf("%s is documented but not served", name)
	}
}

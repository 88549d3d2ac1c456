package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/farhand/farhand/registry"
)

// A target has no more labels than a session can have: the store looks up each.
func TestTargetsHaveFewLabels(t *testing.T) {
	for n, ok := range map[int]bool{registry.MaxLabels: true, registry.MaxLabels + 1: false} {
		var body, query []string
		for i := range n {
			body = append(body, fmt.Sprintf(`"k%d":"v"`, i))
			query = append(query, fmt.Sprintf("label=k%d%%3Dv", i))
		}
		labels, err := readLabels(json.RawMessage("{" + strings.Join(body, ",") + "}"))
		if (err == nil) != ok || ok && len(labels) != n || !ok && !errors.Is(err, registry.CodeInvalidRequest) {
			t.Errorf("%d labels in a body: %d, %v", n, len(labels), err)
		}
		values, err := url.ParseQuery(strings.Join(query, "&"))
		if err != nil {
			t.Fatal(err)
		}
		p := &params{values: values}
		p.target()
		if err := p.failed(); (err == nil) != ok || !ok && !errors.Is(err, registry.CodeInvalidRequest) {
			t.Errorf("%d labels in a query: %v", n, err)
		}
	}
}

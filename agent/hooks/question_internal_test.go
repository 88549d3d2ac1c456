package hooks

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
)

// A result counts as what it takes in a question, where a text may be six times as long as in memory.
func TestSizeOfResults(t *testing.T) {
	grown := strings.Repeat("\x01", 1000)
	for _, r := range []registry.Result{
		{Output: "plain"}, {Output: grown}, {Output: grown, Error: grown}, {Output: `"\"` + grown},
		{Output: `["a"]`, Structured: registry.MustJSON(`["a"]`)},
		{Output: grown, Structured: registry.MustJSON(`["another"]`)},
		{Parts: []registry.Part{
			{Type: registry.PartImage, MIMEType: "image/png", Data: make([]byte, 1000), Size: 1000},
		}},
	} {
		res := resultOf(r)
		text, err := question{Result: res}.encode(time.Now())
		empty, failure := question{Result: new(result)}.encode(time.Now())
		if err = errors.Join(err, failure); err != nil {
			t.Fatal(err)
		}
		const names = 100 // bytes, of members that are not in the empty result
		if more := len(text) - len(empty); res.size() > more || res.size() < more-names {
			t.Errorf("%.20q takes %d bytes more, and counts as %d", r.Output, more, res.size())
		}
	}
}

package mcp

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/farhand/farhand/registry"
)

// Progress grows by numbers that people can read, whatever a device reports, and never to one that JSON does not have.
func TestProgressGrows(t *testing.T) {
	number := func(f float64) *float64 { return &f }
	for _, tc := range []struct {
		reported []*float64
		want     string
	}{
		{[]*float64{nil, nil, nil}, "0 1 2"},
		{[]*float64{number(50), number(50), number(50.5), number(52)}, "50 51 52 53"},
		{[]*float64{number(-3), nil, number(-7)}, "-3 -2 -1"},
		{[]*float64{nil, number(math.MaxFloat64), nil, number(1)}, "0 1.7976931348623157e+308 - -"},
		{[]*float64{number(-math.MaxFloat64), nil, number(1)}, "-1.7976931348623157e+308 - 1"},
	} {
		p := &progress{token: json.RawMessage("1"), last: math.Inf(-1)}
		var got []string
		for _, reported := range tc.reported {
			message := p.appendProgress(nil, registry.CallEvent{Progress: reported})
			if message == nil {
				got = append(got, "-")
				continue
			}
			var m struct {
				Params struct{ Progress json.Number }
			}
			if err := json.Unmarshal(message, &m); err != nil {
				t.Fatalf("%v: %s", err, message)
			}
			got = append(got, m.Params.Progress.String())
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%v, want %s", got, tc.want)
		}
	}
}

package hooks

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/farhand/farhand/registry"
)

// An answer takes memory by the length that was reserved for it, whatever it has, such as a million empty parts.
func TestMemoryOfAnAnswer(t *testing.T) {
	const length, most = 3 << 20, 12 << 20
	for name, text := range map[string]string{
		"parts":      `{"decision":"modify","result":{"parts":[` + strings.Repeat(`{},`, length/3) + `{}]}}`,
		"members":    `{"decision":"modify","result":{"structured":{` + strings.Repeat(`"":1,`, length/5) + `"a":1}}}`,
		"structured": `{"decision":"modify","result":{"structured":[` + strings.Repeat(`0,`, length/2) + `0]}}`,
		"sizes": `{"decision":"modify","result":{"parts":[{"index":0,"size":[` + strings.Repeat(`0,`, length/2) +
			`0]}]}}`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := parseAnswer([]byte(text), phaseAfter)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > most {
			t.Errorf("%s: %d bytes for an answer of %d, %v", name, took, len(text), err)
		}
	}
	var parts []string
	for i := range registry.MaxParts {
		parts = append(parts, fmt.Sprintf(
			`{"index":%d,"type":"image","mime_type":"image/png","name":"n","uri":"u","size":1}`, i))
	}
	text := `{"decision":"modify","result":{"parts":[` + strings.Join(parts, ",") + `]}}`
	if a, err := parseAnswer([]byte(text), phaseAfter); err != nil || len(a.Result.parts) != registry.MaxParts {
		t.Errorf("as many parts as there may be: %v", err)
	}
}

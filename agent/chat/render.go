package chat

import (
	"fmt"
	"strings"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/legible"
)

// readable returns the output of a tool as model and people read it: clean, and at most limit bytes.
func readable(said string, limit int) string {
	return legible.Clean(truncate(legible.Clean(said), limit)) // the ends at the gap may be fragments
}

// show returns readable text as people see it. A fence is longer than any in the text, so nothing in it ends it.
func show(said string, format Format) string {
	if format == FormatPlain {
		return said
	}
	longest, run := 2, 0
	for i := range len(said) {
		if said[i] == '`' {
			run++
			longest = max(longest, run)
		} else {
			run = 0
		}
	}
	fence := strings.Repeat("`", longest+1)
	return fence + "\n" + strings.TrimSuffix(said, "\n") + "\n" + fence
}

// explain returns the text that a model reads of a failed call.
func explain(e *registry.Error) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", e.Code, e.Message)
	for _, v := range e.Violations {
		fmt.Fprintf(&b, "\n%s", v)
	}
	return b.String()
}

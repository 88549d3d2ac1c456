package mcp

import (
	"strings"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/mcpcontent"
	"github.com/farhand/farhand/registry"
)

// appendContent appends the members of a result to a call that ran.
func (r *request) appendContent(b []byte, out *agent.Outcome) []byte {
	exact, _ := r.exact() // of calls it was read before they ran
	style := mcpcontent.Style{CallID: out.CallID, Origin: r.Origin, AnyStructured: r.modern, Exact: exact}
	return style.Append(b, &out.Result)
}

// appendInvalid appends the members of a result that says what is wrong with the arguments, so that a model can mend
// them.
func appendInvalid(b []byte, e *registry.Error) []byte {
	var text strings.Builder
	text.WriteString(e.Message)
	for _, v := range e.Violations {
		text.WriteString("\n" + v.String())
	}
	return append(mcpcontent.AppendText(append(b, `"content":[`...), text.String()), `],"isError":true`...)
}

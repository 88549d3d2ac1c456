package agent

import (
	"fmt"
	"strings"

	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/chat/provenance"
)

// Provenance says where the values of one call of a model come from. Its maker reads the fields below Conversation
// after the call; while the call is on its way, the goroutine that makes it owns them.
type Provenance struct {
	Conversation *provenance.Conversation // what the model has read
	Tool         string                   // as the conversation has it where calls of it were approved; empty: nowhere

	Suspects []provenance.Argument // for which a person should be asked

	// Approved says that a person has seen and allowed the arguments of this very call. A call that "allow always"
	// covers runs, too, but nobody has seen its arguments, so they vouch for nothing.
	Approved bool
}

// noteMarks finds where the arguments of a call come from, as they are after all hooks.
func (inv *Invocation) noteMarks() {
	p := inv.Provenance
	if p == nil || p.Conversation == nil || !p.Conversation.Tainted() {
		return
	}
	p.Approved = false // the call may be judged anew
	inv.Marks = policy.Untrusted
	facts := p.Conversation.Origins(provenance.Call{
		Tool: p.Tool, Args: inv.Args.Raw(), Schema: inv.Spec.Parameters, Destinations: inv.Policy.Destinations,
	})
	if p.Suspects = facts.Suspects(effectOf(inv.Policy.Effects)); len(p.Suspects) > 0 {
		inv.Marks |= policy.ForeignArgument
	}
}

// effectOf returns what a tool may do, as package provenance has it.
func effectOf(e policy.Effects) provenance.Effect {
	switch {
	case e&policy.Destructive != 0:
		return provenance.Destroys
	case e.OnlyReads():
		return provenance.Reads
	default:
		return provenance.Changes
	}
}

// because is Provenance.Because behind another sentence.
func (inv *Invocation) because() string {
	if why := inv.Provenance.Because(); why != "" {
		return " " + why
	}
	return ""
}

// maxSuspects is how many values a sentence names.
const maxSuspects = 3

// Because says in a sentence for people and models why somebody is asked about a call, empty if its values are no
// reason.
func (p *Provenance) Because() string {
	if p == nil || len(p.Suspects) == 0 {
		return ""
	}
	var values []string
	for _, a := range p.Suspects[:min(len(p.Suspects), maxSuspects)] {
		values = append(values, a.String())
	}
	more := ""
	if n := len(p.Suspects) - maxSuspects; n > 0 {
		more = fmt.Sprintf(", and %d more", n)
	}
	return "The person has not named " + strings.Join(values, ", ") + more + "."
}

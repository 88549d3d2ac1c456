package agent

import "strconv"

// nameAll gives every tool its name for models: its own, made acceptable. Where that is taken by an earlier tool,
// a part of a hash of name and source tells the two apart, so that a tool keeps its name as long as the other is there.
// Tools of other sessions never take a name from the tools that are nearer.
func nameAll(near, others []boundTool) []boundTool {
	distinct, names := make(map[string]bool), make([]string, len(near))
	for i, t := range near {
		names[i] = freeName(t.Spec.Name, t, distinct)
		distinct[names[i]] = true
	}
	safe, taken := ModelNames(names), make(map[string]bool)
	for i := range near {
		near[i].ModelName = safe[names[i]]
		taken[near[i].ModelName] = true
	}
	for i, t := range others {
		others[i].ModelName = freeName(plainName(t.Spec.Name), t, taken)
		taken[others[i].ModelName] = true
	}
	return append(near, others...)
}

// freeName returns name, or one made of it that is not taken.
func freeName(name string, t boundTool, taken map[string]bool) string {
	free := name
	for try := 0; taken[free]; try++ { // ends: every try is another name
		free = withHash(name, hashSeparator, t.Source+" "+t.Spec.Name+" "+strconv.Itoa(try))
	}
	return free
}

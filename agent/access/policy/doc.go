// Package policy says who may call and register which tools, and on which conditions. Its rules come from one YAML file
// that an operator writes, from four lists of name patterns, and from the defaults in default.yaml.
//
//	Question ─▶ Policy.Decide ─▶ Decision: allowed, rule, reason, approvals, limits, resources
//
// The hooks before a call, the listings and the command `farhand policy explain` all ask Policy.Decide. Whatever its
// Decision leaves to others is a value in it: who counts calls reads Limits, who asks people reads Approvals, who knows
// where a conversation has read from reads Forbids. Start reading at decision.go and rules.go.
package policy

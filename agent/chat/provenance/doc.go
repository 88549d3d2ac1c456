// Package provenance finds where the values of a model's tool call come from: from the person who talks to the model,
// from the system prompt, from what a person approved, or only from what came from outside, such as a result of a tool.
//
//	texts, each with its source ─▶ Conversation ─▶ Origins of the arguments of a call ─▶ Suspects
//
// The package does no input or output. Its work is bounded: what is too much is not looked at, counts as coming from
// outside, and is said to be cut. Start reading at conversation.go and rule.go; address.go says what an address is.
package provenance

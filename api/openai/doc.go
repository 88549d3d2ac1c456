// Package openai serves /v1: chat completions and models, as OpenAI's API has them, so that its clients work unchanged.
// The tools of a connected device join in a completion and run here. The caller runs its own tools and sends their
// results in the next request, which continues the conversation.
//
//	request ─▶ Host.ReadTurn ─▶ parseRequest ─▶ model, session ─▶ chat.Agent ─▶ answer or stream
//
// The package imports agent, registry and api/internal. Package api imports it, routes to it, and implements Host.
// Start with openai.go and completions.go. errors.go has the errors in OpenAI's format, for every path below Prefix.
package openai

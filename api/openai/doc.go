// Package openai speaks OpenAI's API, so that its clients work unchanged with /v1: it understands requests for chat
// completions, runs their turns, and writes answers, streams, models and errors as OpenAI does. The tools of a
// connected device join in a completion and run here. The caller runs its own tools and sends their results in the
// next request, which continues the conversation.
//
//	body ─▶ ParseRequest ─▶ Request.Open: model, session ─▶ Completion.Answer or Completion.Stream
//
// Package api has the routes (v1.go) and what holds for all requests: bodies, bounds and deadlines. This package
// imports agent, registry and api/internal. Start with completions.go and request.go; errors.go has the errors.
package openai

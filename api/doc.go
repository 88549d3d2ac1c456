// Package api is the HTTP API of the gateway. It decodes and authenticates requests, calls agent.Invoker, chat.Agent or
// the directory, and encodes answers. It decides nothing itself.
//
//	request ─▶ pod header, log, recovery ─▶ origin ─▶ bearer token ─▶ route ─▶ strict reading ─▶ operation
//
// Start with routes.go, which lists every route, and handler.go. agent/access/auth has every error code with its status.
// openapi/ describes both to clients. v1.go routes /v1 to package api/openai, which speaks OpenAI's formats.
//
// The package imports agent and registry, and neither ws nor a store.
package api

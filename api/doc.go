// Package api is the HTTP API of the gateway. It decodes and authenticates requests, calls agent.Invoker, chat.Agent or
// the directory, and encodes answers. It decides nothing itself.
//
//	request ─▶ pod header, log, recovery ─▶ origin ─▶ bearer token ─▶ route ─▶ strict reading ─▶ operation
//
// Start with routes.go, which lists every route, and handler.go. agent/auth has every error code with its status.
// openapi/ describes both to clients. Package api/openai serves /v1 and shares with this package what openai.Host
// names.
//
// The package imports agent and registry, and neither ws nor a store.
package api

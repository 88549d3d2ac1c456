// Package api is the HTTP door of the gateway: it decodes, authenticates, calls agent.Invoker or the directory, and
// encodes. It decides nothing itself.
//
//	request ─▶ pod header, log, recovery ─▶ origin ─▶ bearer token ─▶ route ─▶ strict reading ─▶ operation
//
// routes.go lists every route, agent/guard every error code with its status, openapi/ what is promised about both.
package api

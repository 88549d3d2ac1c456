// Package mcp serves the Model Context Protocol at /mcp: revision 2026-07-28, where every request stands alone, and the
// ones before it, whose clients begin with initialize. Nothing is kept between two requests of a client, so any pod
// answers any of them.
//
// It imports agent and registry. Start with server.go: a POST is read (message.go), checked against its headers
// (revision.go), and answered by the method it names, each of which has a file of its own. Lists are read from the
// directory for every request, and calls go through agent.Invoker, as those of /api do. Decision 44 says why the
// server of the Go SDK is not used.
package mcp

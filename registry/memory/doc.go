// Package memory is the store of a gateway that runs alone: no Redis, nothing kept over a restart. It behaves as a
// shared store does, so several pods of one process may use one Store together, each with a Bus of its own.
//
// Start with store.go, then sessions.go. The other files are named after the contracts of package registry that they
// implement; expiring.go has the map that most of them keep their values in.
//
// Imports: registry, and nothing else of ours.
package memory

// Package memory is the store of a gateway that runs alone: no Redis, nothing kept over a restart. It behaves as a
// shared store does, so several pods of one process may use one Store together, each with a Bus of its own.
//
// Start with store.go; the other files are named after the contracts of package registry that they keep.
//
// Imports: registry and internal packages.
package memory

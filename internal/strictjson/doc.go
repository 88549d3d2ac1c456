// Package strictjson reads JSON that no two parsers understand differently, and takes it apart without copying it.
//
// Start with strict.go. It imports nothing of ours.
package strictjson

// Package heapfloor spaces the garbage collections of a small heap out, so that a busy pod with few sessions does not
// collect dozens of times a second.
//
// Start with Raise in heapfloor.go; it is all there is. It imports nothing of ours.
package heapfloor

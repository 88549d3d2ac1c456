// Package heapfloor spaces the garbage collections of a small heap out, so that a busy pod with few sessions does not
// collect dozens of times a second. It also gives the memory of a pod that came to rest back.
//
// Start with Raise in heapfloor.go; rest.go decides when a pod is at rest. It imports nothing of ours.
package heapfloor

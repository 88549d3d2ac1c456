//go:build race

package ws_test

// maxNodeRatio is how many times as long as a call to a device one to a node may take. The race detector slows the code
// of this module more than the system calls that both have.
const maxNodeRatio = 2

//go:build !race

package ws_test

// maxNodeRatio is how many times as long as a call to a device one to a node may take.
const maxNodeRatio = 1.2

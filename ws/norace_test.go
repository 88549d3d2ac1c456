//go:build !race

package ws_test

// maxNodeRatio is how many times as long as a call to a device one to a node may take: 1.17 to 1.27 were measured. A
// busy machine adds to that.
const maxNodeRatio = 1.5

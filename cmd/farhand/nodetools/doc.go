// Package nodetools is the conventional commands of a node (docs/devices.md), as `farhand device --node` offers them on
// a laptop, so that the gateway's tools nodes, node-invoke and canvas can be tried. There is no camera and no recording
// of the screen: pictures are generated, and say so. Start reading at Tools in tools.go.
package nodetools

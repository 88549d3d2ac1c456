// Package nodes is the tools that reach devices by what they can do: nodes, node-invoke and canvas. Each of their
// actions is a call of a tool that a device has registered under a conventional name (docs/devices.md), made by
// agent.CallDevice, so that everything that holds for the device's tool holds here, too.
//
// It imports agent, agent/access/pairing and registry. Start reading at Registrations in nodes.go; commands.go says which
// action is which command; reach.go says which devices a caller reaches.
package nodes

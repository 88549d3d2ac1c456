// Package upstream makes the tools of MCP servers local tools of the gateway. The servers are named in a file: programs
// that this pod starts and talks to over their input and output, and URLs (Streamable HTTP).
//
// Start at Servers, which has one connection to each server. Nothing waits for a server but the calls of its own tools:
// a server that is slow, gone or hostile costs a bounded part of the pod, and its tools say why they cannot be called.
// Whatever a server sends is bounded before the SDK reads it (transport.go, stdio.go); what it says of its tools is
// admitted as what a device registers is (list.go); what its tools return is as foreign as what devices return
// (result.go). docs/decisions/0046-upstream.md says why it is as it is.
package upstream

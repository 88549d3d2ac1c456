// Package mcpbridge carries MCP between a program that speaks it over standard input and output, one message a line,
// and a gateway that speaks it over HTTP at /mcp: desktop clients only start commands. `farhand mcp` is its user.
//
// Messages pass as they are: each line is a POST of its own, its answer a line, and so is each message of an answer
// that is a stream. The bridge does what the two transports do differently:
//
//   - A revision of 2026-07-28 or later has its version, method and name in headers too (message.go).
//   - A client cancels by a message. Since 2026-07-28 that is the end of the stream over HTTP (bridge.go).
//   - A client of an older revision hears of changed lists without asking. The bridge asks for it (changes.go).
//   - What HTTP refuses becomes a JSON-RPC error, which says what to do (answer.go).
package mcpbridge

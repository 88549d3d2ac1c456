// Package ws is the endpoint for devices: it upgrades GET /ws/chat, speaks the device protocol (docs/protocol.md) over
// one WebSocket per session, or MCP at GET /ws/mcp, and gives the hub of package routing a routing.Conn for each. It
// uses melody and gorilla/websocket, and nothing outside knows that. Of Farhand it may import agent, registry,
// registry/routing and internal; it does not know package api, nor the stores.
//
// # Where to start
//
//   - Server and its life: server.go, config.go; stopping: drain.go.
//   - A request becomes a connection: upgrade.go, sockets.go, hijack.go, refuse.go.
//   - A connection gets its session: open.go; if another connection has it: contest.go, introduce.go.
//   - A frame comes in: receive.go counts it (framescanner.go, devicebudget.go, intake.go), decode.go and fields.go
//     decode it on a stack of stackpool.go, dispatch.go calls its handler: connect.go, register.go, calls.go, chat.go.
//   - A frame goes out: send.go, outbox.go, writerpool.go, writer.go, cork.go; pings: ping.go, pingqueue.go.
//   - A device that speaks MCP (/ws/mcp): mcpopen.go reads who it is, mcpsession.go talks to it, mcpdecode.go,
//     mcpresult.go and mcptools.go turn its messages into frames of the device protocol, mcplink.go and mcpframes.go
//     what it is sent. Everything else is the same connection.
//   - A conversation: chat.go, turnworker.go, chatframes.go.
//   - A connection ends: teardown.go, linger.go; the close codes: closecodes.go.
//
// # To add a frame
//
// A frame that devices send has six places: its type and struct in frames.go, a case in fields.frame (decode.go), a
// case in conn.handle (dispatch.go), its name in receivedTypes and a case in frameType (both stats.go), and who may
// send it in frameRoles (access.go).
//
// A frame to devices has its type and function in frames.go, or in chatframes.go if it belongs to a conversation, and
// its name in sentTypes (stats.go). It must begin with {"type":" because it is counted by that. A device is sent a new
// frame only if it declared a capability for it: registry/session.go has those.
//
// Then docs/protocol.md, and `make docs` for the table of metrics. Package ws/client is the device's side in Go.
//
// # How one connection lives
//
// ServeHTTP checks origin, token and attributes, and refuses with an HTTP error while that is still possible. After the
// upgrade the session is claimed. The first frame is session_start, and calls are delivered only after it. Frames are
// read one after the other in the connection's own goroutine, which waits until each is handled. Everything that is
// written goes through an outbox bounded in bytes, so no sender ever waits for a device. Whatever ends a connection
// (the peer, an error, the registry, a panic in a handler) leads to one teardown, which releases the session exactly
// once.
//
// A message starts a turn of the agent in a goroutine of its own, because the reader must go on: the answers to the
// turn's tool calls come in through it. An idle connection has no such goroutine.
package ws

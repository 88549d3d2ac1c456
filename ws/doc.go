// Package ws is the endpoint for devices: it upgrades GET /ws/chat, speaks the device protocol (docs/protocol.md) over
// one WebSocket per session, and gives the hub of package routing a routing.Conn for each. It uses melody and
// gorilla/websocket, and nothing outside knows that. Of Farhand it may import agent, registry, registry/routing and
// internal; it does not know package api, nor the stores.
//
// # Where to start
//
//   - Server and its life: server.go, config.go; stopping: drain.go.
//   - A request becomes a connection: upgrade.go, openslots.go, hijack.go, refuse.go.
//   - A connection gets its session: open.go; if another connection has it: contest.go, introduce.go.
//   - A frame comes in: receive.go counts it (framescanner.go, allowance.go, intake.go), decode.go and fields.go decode
//     it, dispatch.go calls its handler: connect.go, register.go, calls.go, chat.go.
//   - A frame goes out: send.go, outbox.go, writerpool.go, writer.go, cork.go; pings: ping.go, pingqueue.go.
//   - A conversation: chat.go, turnworker.go, chatframes.go.
//   - A connection ends: teardown.go, linger.go; the close codes: closecodes.go.
//
// To add a frame that devices send: its type and struct in frames.go, a case in fields.frame (decode.go), a case in
// conn.handle (dispatch.go), its name in receivedTypes (stats.go). To add a frame to devices: its type and function in
// frames.go, its name in sentTypes. Then docs/protocol.md, and `make docs` for the table of metrics. Package ws/client is the device's side in Go.
//
// # How one connection lives
//
// ServeHTTP checks origin, token and attributes, and refuses with an HTTP error while that is still possible. After the
// upgrade the session is claimed. The first frame is session_start, and calls are delivered only after it. Frames are
// read and handled one after the other in the connection's own goroutine. Everything that is written goes through an
// outbox bounded in bytes, so no sender ever waits for a device. Whatever ends a connection (the peer, an error, the
// registry, a panic in a handler) leads to one teardown, which releases the session exactly once.
//
// A message starts a turn of the agent in a goroutine of its own, because the reader must go on: the answers to the
// turn's tool calls come in through it. An idle connection has no such goroutine.
package ws

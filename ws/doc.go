// Package ws is the door devices come in through: it upgrades GET /ws/chat, speaks the JSON protocol of the device
// over one WebSocket per session, and gives the registry a routing.Conn for each.
//
// One connection lives like this. ServeHTTP checks origin, token and attributes and refuses with an HTTP error while
// that is still possible. After the upgrade the session is claimed; session_start is the first frame, and only from
// then on calls are delivered. Frames are read and handled one after the other in the connection's own goroutine;
// everything that is written goes through an outbox bounded in bytes, so nobody who writes ever waits for a device.
// Whatever ends a connection (the peer, an error, the registry, a panic in a handler) arrives at one teardown, which
// releases the session exactly once. When the pod stops, drain.go decides who goes when.
//
// A message starts a turn of the agent in a goroutine of its own (talk.go), because the reader is needed: the answers
// to the turn's tool calls come in through it. An idle connection has no such goroutine.
//
// The wire frames stand in frames.go and chatframes.go, the close codes in close.go. Package ws/client is the device's side in Go.
package ws

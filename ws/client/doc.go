// Package client is a device in Go: it connects to a Farhand gateway, offers tools, and answers the calls made to
// them, for as long as it is asked to.
//
//	c, err := client.New("wss://gateway.example.com",
//		client.WithToken(token),
//		client.WithTool(client.Tool{Name: "battery", Description: "Charge of the battery in percent"}, battery))
//	...
//	err = c.Run(ctx)
//
// Run keeps the connection: it reconnects with growing, jittered delays and registers the tools again each time,
// until its context ends or the gateway says not to come back. A call is answered once, however often the gateway
// asks for it, and no handler can take the process down by panicking.
//
// RunMCP makes an MCP server that runs over stdio a device in place of tools in Go; its address ends with /ws/mcp.
//
// The package imports nothing of Farhand, so a device needs nothing else of it. Start at Client.Run and Client.connect
// in client.go: link.go is one connection, frames.go has the frames, calls.go runs handlers, reports.go sends their
// progress, answers.go keeps answers until the gateway has acknowledged them.
package client

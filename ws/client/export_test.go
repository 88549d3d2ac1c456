package client

import "time"

// WithServerWait is how long an MCP server may take to read one message.
func WithServerWait(d time.Duration) Option { return func(c *config) { c.serverWait = d } }

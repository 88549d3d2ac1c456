package client

// SetForeground reports whether the device's app is in the foreground, now and on each later connection. Without a
// report the gateway does not know. In the background it refuses calls of tools whose Effects need the foreground, and
// it prefers a user's device in the foreground. It is safe for concurrent use.
func (c *Client) SetForeground(foreground bool) {
	c.registration.Lock() // keeps the order of reports, also on a new connection
	defer c.registration.Unlock()
	c.foreground = &foreground
	c.send(presenceFrame(foreground))
}

// SetDefault asks the gateway to make this device the default of its user: it gets calls for the user that could go to
// several devices. The device needs an id, and a token that names the user. SetDefault reports whether there is a
// connection; the gateway's answer is logged. It is safe for concurrent use.
func (c *Client) SetDefault() bool { return c.send(sent{Type: "set_default"}.encode()) }

func presenceFrame(foreground bool) []byte {
	return sent{Type: "presence", Foreground: &foreground}.encode()
}

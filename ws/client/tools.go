package client

import (
	"encoding/json"
	"maps"
	"slices"
)

// AddTool offers a tool from now on, or replaces the tool of that name. A nil handler leaves its calls to the handler
// of WithHandler. While connected, the tool is registered at once; the next State shows whether the gateway accepts it.
func (c *Client) AddTool(t Tool, h Handler) error {
	if err := t.validate(); err != nil {
		return err
	}
	frames, err := c.registerFrames([]Tool{t})
	if err != nil {
		return err
	}
	c.registration.Lock()
	defer c.registration.Unlock()
	c.mu.Lock()
	c.offers[t.Name] = offer{t, h}
	c.mu.Unlock()
	for _, frame := range frames {
		c.send(frame)
	}
	return nil
}

// RemoveTool stops offering a tool. Calls of it that run already are answered still.
func (c *Client) RemoveTool(name string) error {
	frame, err := unregisterFrame(name)
	if err != nil {
		return err
	}
	c.registration.Lock()
	defer c.registration.Unlock()
	c.mu.Lock()
	_, there := c.offers[name]
	delete(c.offers, name)
	c.mu.Unlock()
	if there {
		c.send(frame)
	}
	return nil
}

// attach makes l the connection that is used, and sends the first frames: connect, then all tools.
func (c *Client) attach(l *link) error {
	c.mu.Lock()
	token := c.token
	c.mu.Unlock()
	connect, err := c.cfg.connectFrame(token)
	if err != nil {
		return err
	}
	// The lock keeps AddTool and RemoveTool from slipping between the list and its sending.
	c.registration.Lock()
	defer c.registration.Unlock()
	c.mu.Lock()
	var tools []Tool
	for _, name := range slices.Sorted(maps.Keys(c.offers)) {
		tools = append(tools, c.offers[name].tool)
	}
	c.mu.Unlock()
	frames, err := c.registerFrames(tools)
	if err != nil {
		return err
	}
	if err := l.send(connect); err != nil { // first of all frames, so before answers can be sent
		return err
	}
	c.mu.Lock()
	c.link = l
	l.registering = len(frames)
	c.mu.Unlock()
	for _, frame := range frames {
		if err := l.send(frame); err != nil {
			return err
		}
	}
	return nil
}

// detach stops the use of l.
func (c *Client) detach(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link == l {
		c.link = nil
	}
}

// registerFrames returns the frames that register the tools: one, or as many as the frame limit asks for. Without tools
// it returns a frame all the same: its answer shows that the gateway is ready.
func (c *Client) registerFrames(tools []Tool) ([][]byte, error) {
	var frames [][]byte
	var batch []json.RawMessage
	size := 0
	flush := func() error {
		frame, err := registerFrame(batch)
		frames, batch, size = append(frames, frame), nil, 0
		return err
	}
	batch = []json.RawMessage{}
	for _, t := range tools {
		raw, err := encode(t.wire())
		if err != nil {
			return nil, err
		}
		if len(batch) > 0 && size+len(raw) > c.cfg.writeLimit-64 {
			if err := flush(); err != nil {
				return nil, err
			}
		}
		batch = append(batch, raw)
		size += len(raw) + 1
	}
	return frames, flush()
}

// send writes a frame to the connection, if there is one. A failure ends the connection. The next connection makes up
// for what was lost: tools are registered again and answers are sent again.
func (c *Client) send(frame []byte) {
	if l := c.current(); l != nil {
		c.sendOn(l, frame)
	}
}

// current returns the connection, nil while there is none.
func (c *Client) current() *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.link
}

// sendOn writes a frame to one connection and reports whether that worked.
func (c *Client) sendOn(l *link, frame []byte) bool {
	err := l.send(frame)
	if err != nil {
		c.cfg.log.Debug("frame not sent", "error", err)
	}
	return err == nil
}

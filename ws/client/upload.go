package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// errUploading is the error of an upload while another upload of the same call waits for its slot.
var errUploading = errors.New("client: one file of a call is uploaded at a time")

// uploadSlot is the gateway's answer to a request for a slot.
type uploadSlot struct{ url, refused string }

// Upload uploads a file that is too large for a result. It returns the part to put into the result instead of p. It
// reads exactly size bytes of file. It works only while the call runs, for one file at a time.
func (c Call) Upload(ctx context.Context, p Part, size int64, file io.Reader) (Part, error) {
	if c.reporter == nil {
		return p, errors.New("client: the call is not one of a Client")
	}
	client := c.reporter.client
	slot, err := client.askSlot(ctx, c.ID, p, size)
	if err != nil {
		return p, err
	}
	web := newWeb(client.url, client.cfg.tls)
	web.client.Timeout = 0 // ctx ends with the call
	defer web.client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, web.base.JoinPath(slot).String(),
		io.LimitReader(file, size))
	if err != nil {
		return p, err
	}
	req.ContentLength = size
	req.Header.Set("Content-Type", p.MIMEType)
	resp, err := web.client.Do(req)
	if err != nil {
		return p, fmt.Errorf("client: upload: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		return p, refusal(resp)
	}
	p.Data, p.URL, p.Size = nil, slot, size
	return p, nil
}

// askSlot requests a slot from the gateway, and returns its URL.
func (c *Client) askSlot(ctx context.Context, call string, p Part, size int64) (string, error) {
	frame, err := encode(struct {
		Type     string `json:"type"`
		ID       string `json:"id"`
		MIMEType string `json:"mime_type"`
		Size     int64  `json:"size"`
		Name     string `json:"name,omitempty"`
	}{"upload_request", call, p.MIMEType, size, p.Name})
	if err != nil {
		return "", err
	}
	answer := make(chan uploadSlot, 1)
	c.calls.mu.Lock()
	if _, there := c.calls.slotsAsked[call]; there {
		c.calls.mu.Unlock()
		return "", errUploading
	}
	c.calls.slotsAsked[call] = answer
	c.calls.mu.Unlock()
	defer func() {
		c.calls.mu.Lock()
		delete(c.calls.slotsAsked, call)
		c.calls.mu.Unlock()
	}()
	c.send(frame)
	select {
	case slot := <-answer:
		if slot.url == "" {
			return "", fmt.Errorf("client: the gateway takes no file: %s", slot.refused)
		}
		return slot.url, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// slotCame passes the gateway's answer to the upload that waits for it.
func (c *Client) slotCame(f *received) {
	c.calls.mu.Lock()
	defer c.calls.mu.Unlock()
	if answer := c.calls.slotsAsked[f.ID]; answer != nil {
		select {
		case answer <- uploadSlot{f.URL, f.Refuse}:
		default: // already answered
		}
	}
}

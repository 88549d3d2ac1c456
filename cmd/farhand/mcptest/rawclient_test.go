package mcptest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// rawClient speaks MCP with nothing between it and the wire, so that the test sees all that comes.
type rawClient struct {
	http     *http.Client
	url      string
	token    string
	revision string
	session  string // Mcp-Session-Id, if the server gave one; only before 2026-07-28
	ids      atomic.Int64
}

// message is what comes from the server.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *rpcError       `json:"error"`
}

// rpcError is what the server says of a failure.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    struct {
		Code       string `json:"code"`
		Dispatched string `json:"dispatched"`
	} `json:"data"`
}

func (e *rpcError) Error() string { return fmt.Sprintf("%d %s: %s", e.Code, e.Data.Code, e.Message) }

// errBroken is when a pod or its connection ended before the answer had come.
var errBroken = errors.New("the connection broke")

func (c *rawClient) modern() bool { return c.revision == revisions[0] }

// initialize begins as clients of earlier revisions do.
func (c *rawClient) initialize(ctx context.Context) error {
	resp, err := c.send(ctx, 0, "initialize", "", map[string]any{"protocolVersion": c.revision,
		"capabilities": struct{}{}, "clientInfo": map[string]string{"name": "raw", "version": "1"}})
	if err != nil {
		return err
	}
	c.session = resp.Header.Get("Mcp-Session-Id")
	_, err = c.answer(resp, nil)
	return err
}

// request sends a request and returns its result. hear gets the notifications that come before it. name is that of the
// tool, for the header.
func (c *rawClient) request(ctx context.Context, method, name string, params map[string]any, hear func(message)) (
	json.RawMessage, error,
) {
	resp, err := c.send(ctx, c.ids.Add(1), method, name, params)
	if err != nil {
		return nil, err
	}
	return c.answer(resp, hear)
}

func (c *rawClient) send(ctx context.Context, id int64, method, name string, params map[string]any) (
	*http.Response, error,
) {
	if c.modern() {
		meta, _ := params["_meta"].(map[string]any)
		if meta == nil {
			meta = make(map[string]any)
		}
		meta["io.modelcontextprotocol/protocolVersion"] = c.revision
		meta["io.modelcontextprotocol/clientCapabilities"] = struct{}{}
		params["_meta"] = meta
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]string{"Authorization": "Bearer " + c.token, "Content-Type": "application/json",
		"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": c.revision, "Mcp-Method": method,
		"Mcp-Name": name, "Mcp-Session-Id": c.session} {
		if value != "" && (c.modern() || !strings.HasPrefix(name, "Mcp-M") && !strings.HasPrefix(name, "Mcp-N")) {
			req.Header.Set(name, value)
		}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	return resp, nil
}

// answer reads messages up to the one that answers the request.
func (c *rawClient) answer(resp *http.Response, hear func(message)) (json.RawMessage, error) {
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadGateway && !isJSON(resp) { // the balancer's own words
		return nil, fmt.Errorf("%w: status %d", errBroken, resp.StatusCode)
	}
	read := bufio.NewReader(resp.Body)
	for {
		text, err := nextMessage(read, isJSON(resp))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errBroken, err)
		}
		var m message
		if err := json.Unmarshal(text, &m); err != nil {
			return nil, fmt.Errorf("the server sent %q, status %d", text, resp.StatusCode)
		}
		switch {
		case m.Error != nil:
			return nil, m.Error
		case m.Method == "":
			return m.Result, nil
		case hear != nil:
			hear(m)
		}
	}
}

func isJSON(resp *http.Response) bool {
	return strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json")
}

// nextMessage returns the whole body, or the data of the next event.
func nextMessage(r *bufio.Reader, whole bool) ([]byte, error) {
	if whole {
		return io.ReadAll(r)
	}
	for {
		line, err := r.ReadString('\n')
		if data, ok := strings.CutPrefix(line, "data:"); ok {
			return []byte(strings.TrimSpace(data)), nil
		}
		if err != nil {
			return nil, err
		}
	}
}

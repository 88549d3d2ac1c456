package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
)

const (
	dialTimeout  = 10 * time.Second
	writeTimeout = 5 * time.Second
	closeTimeout = time.Second // for the gateway's close frame
	subprotocol  = "clawseed.v1"
)

// link is one connection. Many goroutines may send frames; one reads.
type link struct {
	number  int64 // counts the connections of a client, from 1
	conn    *websocket.Conn
	silence time.Duration
	write   sync.Mutex  // serializes frames; each has its own deadline
	ending  atomic.Bool // only the gateway's close frame is awaited

	// Used by the reader only.
	resumed bool
	backAt  time.Time // reconnect time of server_draining; zero: none

	registering int // pending answers to the opening registration; guarded by Client.mu
}

// dial connects. If the gateway rejects the handshake, the error is a *RefusedError.
func (c *Client) dial(ctx context.Context) (*link, error) {
	dialer := websocket.Dialer{
		Proxy: http.ProxyFromEnvironment, HandshakeTimeout: dialTimeout, TLSClientConfig: c.cfg.tls,
		Subprotocols: []string{subprotocol},
	}
	header := http.Header{}
	if c.cfg.token != "" {
		header.Set("Authorization", "Bearer "+c.cfg.token)
	}
	if len(c.cfg.credential.Key) > 0 {
		web := newWeb(c.url, c.cfg.tls)
		defer web.client.CloseIdleConnections()
		signature, err := web.sign(ctx, c.cfg.credential)
		if err != nil {
			return nil, err
		}
		header.Set("Farhand-Signature", signature)
	}
	conn, resp, err := dialer.DialContext(ctx, c.address(), header)
	if err != nil {
		if errors.Is(err, websocket.ErrBadHandshake) && resp != nil {
			return nil, refusal(resp)
		}
		return nil, err
	}
	l := &link{number: c.links.Add(1), conn: conn, silence: c.cfg.silence}
	conn.SetReadLimit(c.cfg.readLimit)
	conn.SetPingHandler(func(data string) error {
		l.extendReadDeadline()
		// An error also shows in the next read or write; a failed pong need not end the reading.
		_ = conn.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(writeTimeout))
		return nil
	})
	l.extendReadDeadline()
	return l, nil
}

// address returns the URL for the next connection, with the current session.
func (c *Client) address() string {
	u := *c.url
	q := u.Query()
	if id := c.SessionID(); id != "" {
		q.Set("session_id", id)
	}
	if c.cfg.name != "" {
		q.Set("name", c.cfg.name)
	}
	if strings.HasSuffix(u.Path, pathMCP) {
		c.introduceMCP(q)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// endpoint converts the user's address into the URL of the WebSocket endpoint.
func endpoint(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	switch u.Scheme {
	case "ws", "wss":
	case "http":
		u.Scheme = "ws"
	case "https":
		u.Scheme = "wss"
	default:
		return nil, errors.New("the scheme must be ws, wss, http or https")
	}
	if u.Host == "" {
		return nil, errors.New("the host is missing")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/ws/chat"
	}
	return u, nil
}

func refusal(resp *http.Response) *RefusedError {
	e := &RefusedError{Status: resp.StatusCode}
	var problem struct {
		Code   string `json:"code"`
		Detail string `json:"detail"`
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err == nil && json.Unmarshal(body, &problem) == nil {
		e.Code, e.Detail = problem.Code, problem.Detail
	}
	_ = resp.Body.Close()
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		e.retryAfter = seconds(s)
	}
	return e
}

// seconds converts a gateway's number of seconds, limited to between zero and a day. An absurd number must not overflow
// or keep a device away forever.
func seconds(n int) time.Duration { return time.Duration(min(max(n, 0), maxSeconds)) * time.Second }

const maxSeconds = 24 * 60 * 60

// extendReadDeadline moves the read deadline after input from the gateway.
func (l *link) extendReadDeadline() {
	if !l.ending.Load() {
		_ = l.conn.SetReadDeadline(time.Now().Add(l.silence)) // fails only on a closed connection, like the read
	}
}

// send writes one frame. After an error the connection is unusable, but the reader gets closeTimeout: the cause may be
// the gateway's close frame, which says whether to reconnect.
func (l *link) send(frame []byte) error {
	l.write.Lock()
	defer l.write.Unlock()
	err := l.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err == nil {
		err = l.conn.WriteMessage(websocket.TextMessage, frame)
	}
	if err != nil {
		l.ending.Store(true)
		_ = l.conn.SetReadDeadline(time.Now().Add(closeTimeout))
	}
	return err
}

// readFrames passes every text frame to handle until the connection ends, and returns the cause.
func (l *link) readFrames(handle func([]byte)) error {
	for {
		kind, data, err := l.conn.ReadMessage()
		if err != nil {
			return err
		}
		l.extendReadDeadline()
		if kind == websocket.TextMessage {
			handle(data)
		}
	}
}

// closeWhenDone sends a close frame when ctx ends, and closes the connection if the gateway does not answer. The
// returned function stops this and waits for it.
func (l *link) closeWhenDone(ctx context.Context) (stop func()) {
	over := make(chan struct{})  // closed when the reading ends
	ended := make(chan struct{}) // closed when the goroutine ends
	cancel := context.AfterFunc(ctx, func() {
		defer close(ended)
		l.ending.Store(true)
		bye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
		if err := l.conn.WriteControl(websocket.CloseMessage, bye, time.Now().Add(closeTimeout)); err == nil {
			timer := time.NewTimer(closeTimeout)
			defer timer.Stop()
			select {
			case <-over:
			case <-timer.C:
			}
		}
		_ = l.conn.Close()
	})
	return func() {
		close(over)
		if !cancel() {
			<-ended
		}
	}
}

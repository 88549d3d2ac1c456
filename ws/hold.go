package ws

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/gorilla/websocket"
)

// maxHeld is the longest frame that Hold reads, in bytes.
const maxHeld = 1 << 20

// Hold opens a device's WebSocket at the URL of a gateway, sends nothing but the answers to its pings, and reports how
// many pings came while it was held open. It connects as a device without tools. The error says why the WebSocket was
// not opened, or how soon it ended. ctx bounds it. token may be empty; nil trust is the system's.
func Hold(ctx context.Context, gateway, token string, trust *tls.Config, long time.Duration) (pings int, err error) {
	u, err := url.Parse(gateway)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return 0, errors.New("the URL must look like https://gateway.example.com")
	}
	u = u.JoinPath("ws", "chat")
	u.Scheme = map[string]string{"http": "ws", "https": "wss"}[u.Scheme]
	header := http.Header{}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	dialer := websocket.Dialer{Proxy: http.ProxyFromEnvironment, TLSClientConfig: trust}
	conn, resp, err := dialer.DialContext(ctx, u.String(), header)
	switch {
	case errors.Is(err, websocket.ErrBadHandshake):
		return 0, fmt.Errorf("the request for a WebSocket was answered with status %d", resp.StatusCode)
	case err != nil:
		return 0, err
	}
	defer conn.Close() //nolint:errcheck // it is over
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	conn.SetReadLimit(maxHeld) // nothing reads the frames
	answer := conn.PingHandler()
	conn.SetPingHandler(func(data string) error { pings++; return answer(data) })
	opened := time.Now()
	_ = conn.SetReadDeadline(opened.Add(long)) // fails on a closed connection only, as reading does
	for {
		_, _, err = conn.ReadMessage()
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
			_ = conn.WriteControl(websocket.CloseMessage,
				websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(closeFrameWait))
			return pings, nil
		}
		if err != nil {
			return pings, fmt.Errorf("the WebSocket was cut after %.1f s: %w", time.Since(opened).Seconds(), err)
		}
	}
}

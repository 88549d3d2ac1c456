package egress

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"time"
)

// tunnel connects a client to where it asks to, and copies both ways until either ends.
func (p *Proxy) tunnel(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	far, err := p.dial(ctx, r.Host)
	if err != nil {
		p.fail(w, r.Host, err)
		return
	}
	defer far.Close()
	near, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer near.Close()
	defer context.AfterFunc(p.ctx, func() { near.Close(); far.Close() })()
	if near.SetDeadline(time.Now().Add(p.cfg.Lifetime)) != nil {
		return
	}
	if _, err := io.WriteString(near, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	both(near, buffered.Reader, far)
}

// both copies until one side ends, and then ends the other. What the client has sent early is in its reader.
func both(near net.Conn, early *bufio.Reader, far net.Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(far, early)
		far.Close()
		near.Close()
	}()
	_, _ = io.Copy(near, far)
	near.Close()
	far.Close()
	<-done
}

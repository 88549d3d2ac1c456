// Package egress is the outbound proxy for programs that load untrusted URLs, such as a browser. It listens on loopback
// and connects to public addresses only. It resolves every name once, and dials the address that it checked. So neither
// the spelling of a host, nor a redirect, nor a name whose address changes leads anywhere else. CheckURL gives the same
// verdict on a URL early, with a readable error; only the Proxy enforces it.
package egress

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"
)

// Proxy is an HTTP proxy on a random port of loopback, for one client that knows its password. It forwards plain
// requests and opens tunnels (CONNECT). It is safe for concurrent use.
type Proxy struct {
	cfg       Config
	listener  net.Listener
	server    *http.Server
	transport *http.Transport
	forward   *httputil.ReverseProxy
	password  string
	left      atomic.Int64 // bytes
	refusals  refusals
	greeted   atomic.Bool

	ctx     context.Context // of all tunnels
	cancel  context.CancelFunc
	mu      sync.Mutex     // ctx does not end between a check and running.Add
	running sync.WaitGroup // the server and the requests in progress
}

// User is the user name of a Proxy's clients.
const User = "browser"

// HelloURL is answered by the Proxy itself. A client fetches it to present its password for the first time.
const HelloURL = "http://" + helloHost + "/"

// FailedHeader marks the proxy's own answers to plain requests that failed.
const FailedHeader = "X-Farhand-Proxy-Failed"

const (
	helloHost     = "farhand-proxy.invalid"
	headerTimeout = 10 * time.Second
	maxHeader     = 256 << 10
	idleConns     = 16
)

// New starts a Proxy. The caller closes it.
func New(cfg Config) (*Proxy, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{cfg: cfg.orDefaults(), listener: listener, password: rand.Text()}
	p.left.Store(p.cfg.MaxBytes)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.transport = &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return p.dial(ctx, addr)
		},
		MaxIdleConns:           idleConns,
		MaxConnsPerHost:        idleConns,
		IdleConnTimeout:        p.cfg.Idle,
		MaxResponseHeaderBytes: maxHeader, DisableCompression: true,
	}
	p.forward = &httputil.ReverseProxy{
		Transport: p.transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		// Only the proxy itself may set this header.
		ModifyResponse: func(r *http.Response) error { r.Header.Del(FailedHeader); return nil },
		Rewrite:        func(r *httputil.ProxyRequest) { r.Out.Host = r.In.Host },
		ErrorHandler:   func(w http.ResponseWriter, r *http.Request, err error) { p.fail(w, r.URL.Host, err) },
	}
	p.server = &http.Server{
		Handler: p, ReadHeaderTimeout: headerTimeout, MaxHeaderBytes: maxHeader, IdleTimeout: p.cfg.Idle,
		WriteTimeout: p.cfg.Lifetime, ErrorLog: log.New(io.Discard, "", 0),
	}
	p.running.Go(func() { _ = p.server.Serve(netutil.LimitListener(listener, p.cfg.MaxConns)) })
	return p, nil
}

// Addr returns the address that the proxy listens on, as host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Password returns the password for User. It is a secret.
func (p *Proxy) Password() string { return p.password }

// Greeted reports whether HelloURL was fetched with the password.
func (p *Proxy) Greeted() bool { return p.greeted.Load() }

// Refused returns a few of the targets that were refused or not reached since the last call, with the reason.
func (p *Proxy) Refused() []string { return p.refusals.take() }

// Close ends all connections and waits for them.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.cancel()
	p.mu.Unlock()
	_ = p.server.Close()
	p.transport.CloseIdleConnections()
	p.running.Wait()
}

// begin registers a request that Close waits for. It returns false if the proxy is closed.
func (p *Proxy) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return false
	}
	p.running.Add(1)
	return true
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !p.begin() {
		return
	}
	defer p.running.Done()
	if !p.known(r) {
		w.Header().Set("Proxy-Authenticate", `Basic realm="farhand"`)
		w.Header().Set("Connection", "close")
		http.Error(w, "This proxy needs a password.", http.StatusProxyAuthRequired)
		return
	}
	r.Header.Del("Proxy-Authorization")
	switch {
	case r.Method == http.MethodConnect:
		p.tunnel(w, r)
	case r.URL.Scheme != "http" || r.URL.Host == "":
		p.fail(w, r.Host, errNoProxyRequest)
	case r.URL.Host == helloHost:
		p.greeted.Store(true)
	default:
		if r.URL.Port() == "" {
			r.URL.Host = net.JoinHostPort(r.URL.Hostname(), "80")
		}
		p.forward.ServeHTTP(w, r)
	}
}

var errNoProxyRequest = errors.New("this proxy supports only http and https")

func (p *Proxy) known(r *http.Request) bool {
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte(User+":"+p.password))
	return subtle.ConstantTimeCompare([]byte(r.Header.Get("Proxy-Authorization")), []byte(want)) == 1
}

// fail answers a request that failed. The text is for the page that the browser shows. The client also reads it from
// Refused, because browsers show nothing of a refused tunnel.
func (p *Proxy) fail(w http.ResponseWriter, target string, err error) {
	p.refusals.add(target, err)
	status := http.StatusBadGateway
	if errors.Is(err, ErrRefused) {
		status = http.StatusForbidden
	}
	w.Header().Set(FailedHeader, "1")
	http.Error(w, "The gateway's proxy: "+reason(err), status)
}

// tunnel connects a client to its target, and copies both ways until either side ends.
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

// both copies until one side ends, and then closes the other. early holds the bytes that the client has already sent.
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

package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/internal/publicnet"
)

// dial connects to host:port, if it may be. The name is resolved once; the address that was checked is dialled.
func (p *Proxy) dial(ctx context.Context, hostport string) (net.Conn, error) {
	host, portText, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, fmt.Errorf("%w: %q is no address", ErrRefused, hostport)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("%w: %q is no port", ErrRefused, portText)
	}
	if err := p.cfg.checkPort(int(port)); err != nil {
		return nil, err
	}
	if err := p.cfg.guard().CheckURL("http://" + net.JoinHostPort(host, portText) + "/"); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err) // also what is malformed
	}
	addrs, err := p.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, addr := range addrs {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		conn, err := p.cfg.Dial(ctx, "tcp", netip.AddrPortFrom(addr, uint16(port)).String())
		cancel()
		if err == nil {
			return p.meter(conn), nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// resolve returns the addresses of a host that may be connected to, a few at most. Without any, the error is why.
func (p *Proxy) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	addr, err := netip.ParseAddr(host)
	found, literal := []netip.Addr{addr}, err == nil
	if !literal {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		if found, err = p.cfg.Resolver.LookupNetIP(ctx, "ip", host); err != nil {
			return nil, err
		}
	}
	var good []netip.Addr
	refused := fmt.Errorf("%w: %s has no address", ErrRefused, host)
	for _, addr := range found {
		addr = addr.Unmap()
		if err := p.check(addr); err != nil {
			if refused = err; !literal { // what names lead to here is nobody's business
				refused = fmt.Errorf("%w: %s leads into a private or reserved network, or to this machine", ErrRefused,
					host)
			}
			continue
		}
		good = append(good, addr)
	}
	if len(good) == 0 {
		return nil, refused
	}
	return good[:min(len(good), maxTries)], nil
}

// check says whether an address may be connected to. A public address of this machine is as private as loopback:
// servers here listen on both.
func (p *Proxy) check(addr netip.Addr) error {
	if err := p.cfg.guard().Check(addr); err != nil {
		return err
	}
	if p.cfg.AllowPrivate {
		return nil
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("%w: the addresses of this machine are not known: %w", ErrRefused, err)
	}
	if slices.ContainsFunc(own, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr().Unmap() == addr
	}) {
		return fmt.Errorf("%w: %s is an address of this machine", ErrRefused, addr)
	}
	return nil
}

// errBudget ends connections when the proxy has carried what it may.
var errBudget = errors.New("this browser has moved as many bytes as it may; stop it and start it again")

// meteredConn is a connection that counts its bytes, and ends when it is silent or lives for too long.
type meteredConn struct {
	net.Conn
	left *atomic.Int64
	idle time.Duration
	end  time.Time
}

func (p *Proxy) meter(conn net.Conn) net.Conn {
	return &meteredConn{Conn: conn, left: &p.left, idle: p.cfg.Idle, end: time.Now().Add(p.cfg.Lifetime)}
}

// Read implements net.Conn.
func (c *meteredConn) Read(b []byte) (int, error) {
	if err := c.extend(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(b)
	c.left.Add(int64(-n))
	return n, err
}

// Write implements net.Conn.
func (c *meteredConn) Write(b []byte) (int, error) {
	if err := c.extend(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(b)
	c.left.Add(int64(-n))
	return n, err
}

// extend lets the connection be silent for a while longer, if there are bytes left.
func (c *meteredConn) extend() error {
	if c.left.Load() <= 0 {
		return errBudget
	}
	deadline := time.Now().Add(c.idle)
	if c.end.Before(deadline) {
		deadline = c.end
	}
	return c.Conn.SetDeadline(deadline)
}

// Config is the settings of a Proxy.
type Config struct {
	// AllowPrivate allows private networks and this machine, too. Link-local addresses and those where cloud providers
	// hand out credentials are never allowed.
	AllowPrivate bool

	Ports []int // that may be connected to besides 80 and 443

	MaxConns int           // connections at once; default 64
	MaxBytes int64         // of all connections together, both ways, while the proxy lives; default 1 GiB
	Idle     time.Duration // how long a connection may be silent; default 2 min
	Lifetime time.Duration // of one connection; default 15 min

	// Resolver resolves names. Default: net.DefaultResolver.
	Resolver Resolver

	// Dial connects to an address that was found good. Default: a dialer that looks at it once more.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Resolver is the part of net.Resolver that a Proxy needs.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

const (
	defaultConns    = 64
	defaultBytes    = 1 << 30
	defaultIdle     = 2 * time.Minute
	defaultLifetime = 15 * time.Minute

	dialTimeout = 10 * time.Second // of one address
	maxTries    = 3                // addresses of one name
)

func (c Config) orDefaults() Config {
	if c.MaxConns == 0 {
		c.MaxConns = defaultConns
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = defaultBytes
	}
	if c.Idle == 0 {
		c.Idle = defaultIdle
	}
	if c.Lifetime == 0 {
		c.Lifetime = defaultLifetime
	}
	if c.Resolver == nil {
		c.Resolver = net.DefaultResolver
	}
	if c.Dial == nil {
		c.Dial = c.guard().Dialer(dialTimeout).DialContext
	}
	return c
}

func (c Config) guard() publicnet.Guard { return publicnet.Guard{AllowPrivate: c.AllowPrivate} }

// allows reports whether a port may be connected to.
func (c Config) allows(port int) bool {
	return port == 80 || port == 443 || slices.Contains(c.Ports, port)
}

// ErrRefused is the cause of every error that says that something must not be connected to.
var ErrRefused = publicnet.ErrRefused

// CheckURL says what is wrong with a URL as far as its text tells. Names are not resolved.
func (c Config) CheckURL(text string) error {
	if err := c.guard().CheckURL(text); err != nil {
		return err
	}
	u, err := url.Parse(text)
	if err != nil {
		return err // CheckURL has read it
	}
	port := map[string]int{"http": 80, "https": 443}[u.Scheme]
	if p := u.Port(); p != "" {
		if port, err = strconv.Atoi(p); err != nil {
			return fmt.Errorf("%w: the port %q is no number", ErrRefused, p)
		}
	}
	return c.checkPort(port)
}

func (c Config) checkPort(port int) error {
	if !c.allows(port) {
		return fmt.Errorf("%w: port %d is not open for the browser", ErrRefused, port)
	}
	return nil
}

const (
	maxRefusals = 8
	maxTarget   = 100 // bytes
)

// refusals remembers what led nowhere, for whoever asks next.
type refusals struct {
	mu    sync.Mutex
	lines []string
	more  int
}

func (r *refusals) add(target string, err error) {
	if errors.Is(err, context.Canceled) {
		return // the browser changed its mind
	}
	if len(target) > maxTarget {
		target = target[:maxTarget] + "…"
	}
	line := strings.ToValidUTF8(target, "?") + ": " + reason(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case slices.Contains(r.lines, line):
	case len(r.lines) == maxRefusals:
		r.more++
	default:
		r.lines = append(r.lines, line)
	}
}

func (r *refusals) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := r.lines
	if r.more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", r.more))
	}
	r.lines, r.more = nil, 0
	return lines
}

// reason says in words why a connection was not made, and nothing of this machine's network.
func reason(err error) string {
	var dns *net.DNSError
	switch {
	case errors.Is(err, ErrRefused):
		return "refused: " + strings.ReplaceAll(err.Error(), ErrRefused.Error()+": ", "")
	case errors.As(err, &dns) && dns.IsNotFound:
		return "there is no such host"
	case errors.As(err, &dns):
		return "the name could not be resolved"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "it did not answer in time"
	case errors.Is(err, errBudget):
		return errBudget.Error()
	case errors.Is(err, errNoProxyRequest):
		return errNoProxyRequest.Error()
	default:
		return "it could not be reached"
	}
}

package egress

import (
	"cmp"
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

// dial connects to host:port if that is allowed. It resolves the name once, and dials the address that it checked.
func (p *Proxy) dial(ctx context.Context, hostport string) (net.Conn, error) {
	host, portText, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, fmt.Errorf("%w: %q is not host:port", ErrRefused, hostport)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("%w: %q is not a valid port", ErrRefused, portText)
	}
	if err := p.cfg.checkPort(int(port)); err != nil {
		return nil, err
	}
	if err := p.cfg.guard().CheckURL("http://" + net.JoinHostPort(host, portText) + "/"); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err) // also for malformed hosts
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

// resolve returns at most maxTries allowed addresses of a host, or an error if there are none.
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
			if refused = err; !literal { // do not reveal what names resolve to here
				refused = fmt.Errorf("%w: %s resolves to a private or reserved network, or to this machine", ErrRefused,
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

// check returns an error if an address must not be connected to. It treats a public address of this machine like
// loopback, because servers here listen on both.
func (p *Proxy) check(addr netip.Addr) error {
	if err := p.cfg.guard().Check(addr); err != nil {
		return err
	}
	if p.cfg.AllowPrivate {
		return nil
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("%w: this machine's addresses are not known: %w", ErrRefused, err)
	}
	if slices.ContainsFunc(own, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr().Unmap() == addr
	}) {
		return fmt.Errorf("%w: %s is an address of this machine", ErrRefused, addr)
	}
	return nil
}

// errBudget ends connections when the proxy has used up its byte budget.
var errBudget = errors.New("this browser has reached its traffic limit; stop it and start it again")

// meteredConn is a connection that counts its bytes. It ends after Config.Idle without traffic, after Config.Lifetime,
// or when the byte budget of the proxy is used up.
type meteredConn struct {
	net.Conn
	left *atomic.Int64
	idle time.Duration
	end  time.Time
}

func (p *Proxy) meter(conn net.Conn) net.Conn {
	return &meteredConn{Conn: conn, left: &p.left, idle: p.cfg.Idle, end: time.Now().Add(p.cfg.Lifetime)}
}

func (c *meteredConn) Read(b []byte) (int, error) { return c.count(c.Conn.Read, b) }

func (c *meteredConn) Write(b []byte) (int, error) { return c.count(c.Conn.Write, b) }

func (c *meteredConn) count(move func([]byte) (int, error), b []byte) (int, error) {
	if err := c.extend(); err != nil {
		return 0, err
	}
	n, err := move(b)
	c.left.Add(int64(-n))
	return n, err
}

// extend moves the deadline by another idle period, within the connection's lifetime. It fails if no bytes are left.
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
	// AllowPrivate also allows private networks and this machine. Link-local addresses and the addresses where cloud
	// providers hand out credentials are never allowed.
	AllowPrivate bool
	Ports        []int // allowed in addition to 80 and 443

	MaxConns int           // concurrent connections; default 64
	MaxBytes int64         // of all connections, both ways, over the proxy's life; default 1 GiB
	Idle     time.Duration // how long a connection may be silent; default 2 min
	Lifetime time.Duration // of one connection; default 15 min

	Resolver Resolver // default: net.DefaultResolver

	// Dial connects to an address that passed the checks. Default: a dialer that checks it again.
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
	c.MaxConns, c.MaxBytes = cmp.Or(c.MaxConns, defaultConns), cmp.Or(c.MaxBytes, defaultBytes)
	c.Idle, c.Lifetime = cmp.Or(c.Idle, defaultIdle), cmp.Or(c.Lifetime, defaultLifetime)
	c.Resolver = cmp.Or[Resolver](c.Resolver, net.DefaultResolver)
	if c.Dial == nil {
		c.Dial = c.guard().Dialer(dialTimeout).DialContext
	}
	return c
}

func (c Config) guard() publicnet.Guard { return publicnet.Guard{AllowPrivate: c.AllowPrivate} }

// ErrRefused is the cause of every error about a target that must not be connected to.
var ErrRefused = publicnet.ErrRefused

// CheckURL returns an error if the text of a URL shows that it is not allowed. It does not resolve names.
func (c Config) CheckURL(text string) error {
	if err := c.guard().CheckURL(text); err != nil {
		return err
	}
	u, err := url.Parse(text)
	if err != nil {
		return err // unreachable: the guard has parsed it
	}
	port := map[string]int{"http": 80, "https": 443}[u.Scheme]
	if p := u.Port(); p != "" {
		if port, err = strconv.Atoi(p); err != nil {
			return fmt.Errorf("%w: the port %q is not a number", ErrRefused, p)
		}
	}
	return c.checkPort(port)
}

func (c Config) checkPort(port int) error {
	if port != 80 && port != 443 && !slices.Contains(c.Ports, port) {
		return fmt.Errorf("%w: port %d is not open for the browser", ErrRefused, port)
	}
	return nil
}

const (
	maxRefusals = 8
	maxTarget   = 100 // bytes
)

// refusals collects failed connections until take returns them.
type refusals struct {
	mu    sync.Mutex
	lines []string
	more  int
}

func (r *refusals) add(target string, err error) {
	if errors.Is(err, context.Canceled) {
		return // the browser canceled the connection
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

// reason says why a connection failed. It reveals nothing of this machine's network.
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

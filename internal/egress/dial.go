package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
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

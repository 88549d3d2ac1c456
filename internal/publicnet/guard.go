package publicnet

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// ErrRefused is the cause of every error of a Guard.
var ErrRefused = errors.New("address refused")

// Guard says which addresses may be connected to: public ones, and private ones if they are allowed. Never means never.
// Its methods are safe for concurrent use.
type Guard struct {
	AllowPrivate bool
}

// Check returns an error, with ErrRefused, if the address may not be connected to.
func (g Guard) Check(addr netip.Addr) error {
	switch KindOf(addr) {
	case Public:
		return nil
	case Private:
		if g.AllowPrivate {
			return nil
		}
		return fmt.Errorf("%w: %s is an address of this machine or of a private network", ErrRefused, addr)
	default:
		return fmt.Errorf("%w: %s is reserved, or an address where a cloud provider hands out credentials",
			ErrRefused, addr)
	}
}

// Control is for net.Dialer: it looks at the address a socket is about to be connected to.
func (g Guard) Control(network, address string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("%w: %s is no TCP", ErrRefused, network)
	}
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return g.Check(addr.Addr())
}

// Dialer returns a dialer that connects only where the guard allows it. timeout bounds one connection, the resolving of
// its name included.
func (g Guard) Dialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{Timeout: timeout, Control: g.Control}
}

// Transport returns a transport that connects only where the guard allows it, and through no proxy: a proxy would
// connect to whatever it is told. The caller bounds connections as it needs, and closes the idle ones at its end.
func (g Guard) Transport(timeout time.Duration) *http.Transport {
	return &http.Transport{
		DialContext: g.Dialer(timeout).DialContext, TLSHandshakeTimeout: timeout, ForceAttemptHTTP2: true,
		MaxResponseHeaderBytes: maxHeader, IdleConnTimeout: idleTimeout,
		DisableCompression: true, // what is compressed may be of any size
	}
}

const (
	maxHeader   = 16 << 10
	idleTimeout = 30 * time.Second
)

package egress

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/farhand/farhand/internal/publicnet"
)

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

package farhand

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/farhand/farhand/internal/certificate"
	"github.com/farhand/farhand/internal/memlimit"
	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/ws"
)

// readCertificates looks at how long the certificates that a gateway depends on stay valid: its own, those of Redis,
// and the one that clients get.
func (o Online) readCertificates(ctx context.Context, cfg Config) (string, error) {
	var names []string
	var looks []func() (string, error)
	add := func(name string, look func() (string, error)) {
		names, looks = append(names, name), append(looks, look)
	}
	if cfg.TLSCert != "" {
		add("FARHAND_TLS_CERT", func() (string, error) {
			pair, err := certificate.Load(cfg.TLSCert, cfg.TLSKey)
			if err != nil {
				return "", err
			}
			return lasts(pair.Leaf)
		})
	}
	if cfg.RedisURL != "" {
		add("Redis", func() (string, error) {
			found, err := redisstore.Certificates(ctx, cfg.redis())
			if err != nil || len(found) == 0 {
				return "no TLS", explained(err)
			}
			return firstToExpire(found)
		})
	}
	if u, err := url.Parse(o.URL); err == nil && u.Scheme == "https" {
		add(o.URL, func() (string, error) { return o.readPublic(ctx, u) })
	}
	if len(names) == 0 {
		return "none is used, as far as the configuration says", nil
	}
	return eachOf(names, func(i int) (string, error) { return looks[i]() })
}

// explained explains an error of Redis, if there is one.
func explained(err error) error {
	if err == nil {
		return nil
	}
	return explainRedis(err)
}

func firstToExpire(found map[string]*x509.Certificate) (string, error) {
	var all []*x509.Certificate
	for _, cert := range found {
		all = append(all, cert)
	}
	return lasts(slices.MinFunc(all, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }))
}

// lasts says until when a certificate is valid.
func lasts(cert *x509.Certificate) (string, error) {
	now := time.Now()
	if err := certificate.Valid(cert, now); err != nil {
		return "", fmt.Errorf("%w: replace it", err)
	}
	if err := certificate.Soon(cert, now); err != nil {
		return "", notable{err}
	}
	return certificate.Describe(cert), nil
}

// readPublic reads the certificate that clients of the gateway get.
func (o Online) readPublic(ctx context.Context, u *url.URL) (string, error) {
	port := u.Port()
	if port == "" {
		port = "443"
	}
	conn, err := (&tls.Dialer{Config: o.Trust}).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return "", fmt.Errorf("clients do not accept it: %w", err)
	}
	defer conn.Close() //nolint:errcheck // nothing was sent
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return "", errors.New("no TLS")
	}
	return lasts(secure.ConnectionState().PeerCertificates[0])
}

// maxHold bounds how long a WebSocket is held.
const maxHold = time.Minute

// holdTime is how long a WebSocket is held: until the gateway has pinged it, and a proxy that counts silence from there
// has had a moment.
func (c Config) holdTime() time.Duration { return min(c.PingInterval*5/4+time.Second, maxHold) }

// holdSocket holds a device's WebSocket open at the gateway's URL, as silent as devices are.
func (o Online) holdSocket(ctx context.Context, cfg Config) (string, error) {
	if o.URL == "" {
		return "not checked: pass the gateway's URL with --url, or set FARHAND_PUBLIC_URL", nil
	}
	if o.Token == "" && !cfg.Anonymous() {
		return "", notable{errors.New("not checked: pass the key of a device with --token")}
	}
	hold := cfg.holdTime()
	pings, err := ws.Hold(ctx, o.URL, o.Token, o.Trust, hold)
	switch {
	case err != nil && pings == 0:
		return "", fmt.Errorf("%s: %w\nProxies on the way must pass WebSockets (Upgrade), and keep silent ones longer "+
			"than FARHAND_PING_INTERVAL (%v)", o.URL, err, cfg.PingInterval)
	case err != nil:
		return "", fmt.Errorf("%s: %w\nProxies on the way must not bound how long a WebSocket lasts", o.URL, err)
	case pings == 0 && hold < maxHold:
		return "", fmt.Errorf("%s: no ping came in %v: is FARHAND_PING_INTERVAL there %v, and does a proxy hold "+
			"messages back?", o.URL, hold, cfg.PingInterval)
	}
	return fmt.Sprintf("a WebSocket was held for %v, with %d pings", hold, pings), nil
}

const (
	// sessionMemory is about what an idle session takes of a pod (docs/performance.md).
	sessionMemory = 16 << 10
	// podMemory is about what a pod takes without sessions.
	podMemory = 64 << 20
)

// checkMemory reports whether the memory of this machine or container is enough for all sockets that the configuration
// allows.
func checkMemory(_ context.Context, cfg Config) (string, error) {
	return cfg.fits(memlimit.Bytes())
}

// fits reports whether all sockets fit in a limit of memory. Zero is unknown.
func (c Config) fits(limit int64) (string, error) {
	const mb = 1 << 20
	idle := podMemory + int64(c.MaxSockets)*sessionMemory
	queues := c.MaxUnsent + c.MaxUnfinished + c.OfferedBytes
	text := fmt.Sprintf("FARHAND_MAX_SOCKETS (%d) idle devices take about %d MB, and up to %d MB more in queues and "+
		"definitions of tools", c.MaxSockets, idle/mb, queues/mb)
	switch {
	case limit == 0:
		return text + "; the memory of this machine is not known", nil
	case idle+queues <= limit:
		return fmt.Sprintf("%s, of %d MB", text, limit/mb), nil
	default:
		return "", fmt.Errorf("%s, but there are %d MB. Give it more, or lower FARHAND_MAX_SOCKETS, to %d at most, or "+
			"FARHAND_MAX_UNSENT, FARHAND_MAX_UNFINISHED and FARHAND_MAX_OFFERED_BYTES", text, limit/mb,
			max((limit-podMemory-queues)/sessionMemory, 0))
	}
}

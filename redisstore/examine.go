package redisstore

import (
	"context"
	"crypto/x509"
	"time"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
)

// Missing returns which of the commands that a pod sends the servers refuse to the user of o.URL, in their words. It
// tries each on a key and a channel of its own, which it removes. Unlike Dial it needs no right. ctx bounds it.
func Missing(ctx context.Context, o Options) ([]string, error) {
	return redisconn.Missing(ctx, o.servers())
}

// Skew returns by how much the clock of the servers is ahead of this machine's, of several the one furthest off. It is
// exact to half of a round trip.
func Skew(ctx context.Context, o Options) (time.Duration, error) {
	return redisconn.Skew(ctx, o.servers())
}

// Certificates returns the certificates of the servers that o.URL names, by host and port; none without TLS. An error
// says which server cannot be reached, or why its certificate is not accepted.
func Certificates(ctx context.Context, o Options) (map[string]*x509.Certificate, error) {
	return redisconn.Certificates(ctx, o.servers())
}

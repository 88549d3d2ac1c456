package redisstore

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strings"
	"time"
)

// Version implements registry.Directory. Whoever changes what listings show writes a new value behind the change; the
// rest of it is which pods are live. The value expires some time after the last change and is then made up anew, so
// that a change whose new value got lost, with its pod, is not overlooked for longer than that.
func (s *Store) Version(ctx context.Context, tenant string) (string, error) {
	live, err := s.live.since(ctx, time.Now().Add(-s.live.age))
	if err != nil {
		return "", unavailable("version", err)
	}
	b := s.conn.batch()
	c := b.do("GET", versionKey(tenant))
	if err := b.run(ctx); err != nil {
		return "", unavailable("version", err)
	}
	value, ok := c.text()
	if !ok {
		made := rand.Text()
		b = s.conn.batch()
		c = b.do("SET", versionKey(tenant), made, "NX", "GET", "PX", s.indexTTL)
		if err := b.run(ctx); err != nil {
			return "", unavailable("version", err)
		}
		if value, ok = c.text(); !ok {
			value = made
		}
	}
	return value + " " + strings.Join(slices.Sorted(maps.Keys(live)), " "), nil
}

// changed adds to the batch, as its last part, that listings of the tenants may look different from now on.
func (s *Store) changed(b *batch, tenants ...string) {
	b.then()
	for _, tenant := range tenants {
		b.do("SET", versionKey(tenant), rand.Text(), "PX", s.indexTTL)
	}
}

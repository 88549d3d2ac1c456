package redisstore

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
)

// Version implements registry.Directory. Whoever changes what listings show writes a new value behind the change; the
// rest of it is which pods are live. The value expires some time after the last change and is then made up anew, so
// that a change whose new value got lost, with its pod, is not overlooked for longer than that.
func (s *Store) Version(ctx context.Context, tenant string) (string, error) {
	live, err := s.live.since(ctx, time.Now().Add(-s.live.age))
	if err != nil {
		return "", redisconn.Unavailable("version", err)
	}
	pipe := s.conn.Pipeline()
	c := pipe.Do("GET", versionKey(tenant))
	if err := pipe.Exec(ctx); err != nil {
		return "", redisconn.Unavailable("version", err)
	}
	value, ok := c.Text()
	if !ok {
		made := rand.Text()
		pipe = s.conn.Pipeline()
		c = pipe.Do("SET", versionKey(tenant), made, "NX", "GET", "PX", s.indexTTL)
		if err := pipe.Exec(ctx); err != nil {
			return "", redisconn.Unavailable("version", err)
		}
		if value, ok = c.Text(); !ok {
			value = made
		}
	}
	return value + " " + strings.Join(slices.Sorted(maps.Keys(live)), " "), nil
}

// changed adds to the batch, as its last part, that listings of the tenants may look different from now on.
func (s *Store) changed(pipe *redisconn.Pipeline, tenants ...string) {
	pipe.Then()
	for _, tenant := range tenants {
		pipe.Do("SET", versionKey(tenant), rand.Text(), "PX", s.indexTTL)
	}
}

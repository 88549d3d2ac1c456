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

// Version implements registry.Directory. It is a value that every pod replaces after it has changed what listings show,
// and the names of the live pods. The value expires some time after the last change, and the next reader makes a new
// one. So a change whose new value was lost, with its pod, is not overlooked for longer than that.
func (s *Store) Version(ctx context.Context, tenant string) (string, error) {
	live, err := s.live.since(ctx, time.Now().Add(-s.live.age))
	if err != nil {
		return "", redisconn.Unavailable("version", err)
	}
	c, err := s.conn.Do(ctx, "GET", versionKey(tenant))
	if err != nil {
		return "", redisconn.Unavailable("version", err)
	}
	value, ok := c.Text()
	if !ok {
		made := rand.Text()
		c, err := s.conn.Do(ctx, "SET", versionKey(tenant), made, "NX", "GET", "PX", s.indexTTL)
		if err != nil {
			return "", redisconn.Unavailable("version", err)
		}
		if value, ok = c.Text(); !ok {
			value = made
		}
	}
	return value + " " + strings.Join(slices.Sorted(maps.Keys(live)), " "), nil
}

// changed adds to the pipeline, as its last part, that listings of the tenants may look different from now on.
func (s *Store) changed(pipe *redisconn.Pipeline, tenants ...string) {
	pipe.Then()
	for _, tenant := range tenants {
		pipe.Do("SET", versionKey(tenant), rand.Text(), "PX", s.indexTTL)
	}
}

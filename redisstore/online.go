package redisstore

import (
	"context"
	"slices"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// onlineSessions is how many of the newest sessions of a device are looked at: several, because an index may name some
// that are gone.
const onlineSessions = 4

// OnlineDevices implements registry.Directory: one pipeline reads the indexes of many devices, and a second one the
// sessions in them.
func (s *Store) OnlineDevices(
	ctx context.Context, tenant string, deviceIDs []string,
) (map[string]registry.Entry, error) {
	online := make(map[string]registry.Entry)
	for ids := range slices.Chunk(deviceIDs, listChunk) {
		if err := s.findOnline(ctx, tenant, ids, online); err != nil {
			return nil, redisconn.Unavailable("online devices", err)
		}
	}
	return online, nil
}

func (s *Store) findOnline(ctx context.Context, tenant string, ids []string, online map[string]registry.Entry) error {
	pipe := s.conn.Pipeline()
	newest := make([]*redisconn.Command, len(ids))
	for i, id := range ids {
		newest[i] = pipe.Do("ZREVRANGE", deviceIndex(tenant, id), 0, onlineSessions-1)
	}
	if err := pipe.Exec(ctx); err != nil {
		return err
	}
	var keys []registry.Key
	for _, c := range newest {
		for _, session := range c.Strings() {
			keys = append(keys, registry.Key{Tenant: tenant, Session: session})
		}
	}
	if len(keys) == 0 {
		return nil
	}
	hashes, _, err := s.readHashes(ctx, keys)
	if err != nil {
		return err
	}
	var bound []found // without their tools
	for i, hash := range hashes {
		session, err := parseSession(keys[i], hash)
		if err == nil && session.Bound {
			bound = append(bound, found{session: session, exists: true, pulse: parsePulse(hash[fieldPulse])})
		}
	}
	entries, err := s.entries(ctx, tenant, bound)
	if err != nil {
		return err
	}
	for _, e := range entries {
		id := e.Session.DeviceID
		if known, ok := online[id]; slices.Contains(ids, id) &&
			(!ok || e.Session.Generation > known.Session.Generation) {
			online[id] = e
		}
	}
	return nil
}

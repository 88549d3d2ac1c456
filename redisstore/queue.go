package redisstore

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

const (
	queueSlack   = time.Hour // how much longer than its calls a queue is kept
	queueTenants = 500       // tenants that one sweep reads
	queueScan    = 500       // calls that one step of an erasure reads
	noIdentity   = "-"       // stands for no identity in the head of a queued call
)

func identityText(identity string) string {
	if identity == "" {
		return noIdentity
	}
	return "=" + redisconn.Escape(identity)
}

// Enqueue implements registry.QueueStore. The tenant is listed first: without that, the call would not be swept.
func (s *Store) Enqueue(
	ctx context.Context, c registry.QueuedCall, life time.Duration, b registry.QueueBounds,
) (int, time.Time, error) {
	keep, device, share := millis(life+queueSlack), redisconn.Escape(c.Device), b.OfDevice(&c)
	pipe := s.conn.Pipeline()
	pipe.Do("ZADD", queuesKey, "GT", time.Now().UnixMilli()+keep, c.Tenant)
	pipe.Do("PEXPIRE", queuesKey, keep, "GT")
	pipe.Do("PEXPIRE", queuesKey, keep, "NX")
	pipe.Then()
	add := pipe.Eval(scriptQueueAdd, queueKeys(c.Tenant, c.Device), c.CallID, device, identityText(c.Identity),
		millis(life), keep, c.Request, b.Device.Calls, b.Device.Bytes, b.Identity.Calls, b.Identity.Bytes,
		b.Tenant.Calls, b.Tenant.Bytes, share.Calls, share.Bytes)
	if err := pipe.Exec(ctx); err != nil {
		return 0, time.Time{}, err
	}
	answer := add.Strings()
	if len(answer) != 2 {
		return 0, time.Time{}, add.ErrShape()
	}
	position := int(redisconn.Int(answer[0]))
	if position == 0 {
		return 0, time.Time{}, registry.QueueFull(answer[1])
	}
	return position, fromMillis(answer[1]), s.conn.Confirm(ctx, deviceQueueKey(c.Tenant, c.Device))
}

// parseQueued reads the head and the request of a queued call.
func parseQueued(tenant, id, text string) (registry.QueuedCall, error) {
	head, request, _ := strings.Cut(text, "\n")
	words := strings.Fields(head)
	if len(words) != 5 {
		return registry.QueuedCall{}, registry.StoreUnavailable("read a queue", fmt.Errorf("head %.100q", head))
	}
	device, err := url.PathUnescape(words[0])
	if err != nil {
		return registry.QueuedCall{}, registry.StoreUnavailable("read a queue", err)
	}
	identity, err := url.PathUnescape(strings.TrimPrefix(strings.TrimPrefix(words[1], noIdentity), "="))
	if err != nil {
		return registry.QueuedCall{}, registry.StoreUnavailable("read a queue", err)
	}
	return registry.QueuedCall{
		Tenant: tenant, CallID: id, Device: device, Identity: identity, Request: []byte(request),
		Since: fromMillis(words[3]), Expires: fromMillis(words[4]),
	}, nil
}

// QueueHead implements registry.QueueStore.
func (s *Store) QueueHead(ctx context.Context, tenant, device string) (registry.QueuedCall, bool, error) {
	c, err := s.conn.Eval(ctx, scriptQueueHead, queueKeys(tenant, device))
	if err != nil {
		return registry.QueuedCall{}, false, err
	}
	answer := c.Strings()
	switch len(answer) {
	case 0:
		return registry.QueuedCall{}, false, nil
	case 2:
		q, err := parseQueued(tenant, answer[0], answer[1])
		return q, err == nil, err
	}
	return registry.QueuedCall{}, false, c.ErrShape()
}

// QueuePosition implements registry.QueueStore.
func (s *Store) QueuePosition(ctx context.Context, tenant, device, callID string) (int, error) {
	c, err := s.conn.Do(ctx, "ZRANK", deviceQueueKey(tenant, device), callID)
	if err != nil {
		return 0, err
	}
	if !c.Found() {
		return 0, nil
	}
	return int(c.Int()) + 1, nil
}

// QueueOf implements registry.QueueStore.
func (s *Store) QueueOf(ctx context.Context, tenant, device string, limit int) ([]string, error) {
	c, err := s.conn.Do(ctx, "ZRANGE", deviceQueueKey(tenant, device), 0, limit-1)
	return c.Strings(), err
}

// Waiting implements registry.QueueStore.
func (s *Store) Waiting(ctx context.Context, tenant string, devices ...string) ([]bool, error) {
	pipe, commands := s.conn.Pipeline(), make([]*redisconn.Command, len(devices))
	for i, device := range devices {
		commands[i] = pipe.Do("EXISTS", deviceQueueKey(tenant, device))
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	waiting := make([]bool, len(devices))
	for i, c := range commands {
		waiting[i] = c.Int() == 1
	}
	return waiting, nil
}

// Dequeue implements registry.QueueStore.
func (s *Store) Dequeue(ctx context.Context, tenant, device, callID string) (bool, error) {
	c, err := s.conn.Eval(ctx, scriptQueueRemove, queueKeys(tenant, device), callID)
	return c.Int() == 1, err
}

// due reads what has expired and the sums of tenants that have queues: of queueTenants of them, without the first skip.
// The order is by the end of their queues, latest first. A call that is added can only move its tenant to the front, so
// a reader that skips those it has read misses none.
func (s *Store) due(
	ctx context.Context, skip int64, limit int, again time.Duration,
) (calls []registry.QueuedCall, stats map[string]registry.QueueStats, err error) {
	now := time.Now().UnixMilli()
	c, err := s.conn.Do(ctx, "ZREVRANGEBYSCORE", queuesKey, "+inf", now, "LIMIT", skip, queueTenants)
	if err != nil {
		return nil, nil, err
	}
	tenants, pipe := c.Strings(), s.conn.Pipeline()
	scripts := make([]*redisconn.Command, len(tenants))
	for i, tenant := range tenants {
		scripts[i] = pipe.Eval(scriptQueueDue, queueKeys(tenant, "")[:3], limit, again.Milliseconds())
	}
	pipe.Do("ZREMRANGEBYSCORE", queuesKey, "-inf", now)
	if err := pipe.Exec(ctx); err != nil {
		return nil, nil, err
	}
	stats = make(map[string]registry.QueueStats)
	for i, c := range scripts {
		answer := c.Strings()
		if len(answer) < 3 || len(answer)%2 == 0 {
			return nil, nil, c.ErrShape()
		}
		stats[tenants[i]] = registry.QueueStats{
			Calls: redisconn.Int(answer[0]), Bytes: redisconn.Int(answer[1]),
			Oldest: time.Duration(redisconn.Int(answer[2])) * time.Millisecond,
		}
		for at := 3; at < len(answer); at += 2 {
			q, err := parseQueued(tenants[i], answer[at], answer[at+1])
			if err != nil {
				return nil, nil, err
			}
			calls = append(calls, q)
		}
	}
	return calls, stats, nil
}

// DueQueued implements registry.QueueStore. With more than queueTenants tenants, each call reads the next of them.
func (s *Store) DueQueued(ctx context.Context, limit int, again time.Duration) ([]registry.QueuedCall, error) {
	skip := s.swept.Load()
	calls, stats, err := s.due(ctx, skip, limit, again)
	if err == nil && len(calls) < limit {
		next := skip + queueTenants
		if len(stats) < queueTenants {
			next = 0
		}
		s.swept.CompareAndSwap(skip, next)
	}
	return calls, err
}

// ScanQueued implements registry.QueueStore. A cursor has the position of a tenant, how far its calls were read, and
// its name, because a call that is added moves its tenant to the front.
func (s *Store) ScanQueued(ctx context.Context, cursor string, limit int) ([]registry.QueuedCall, string, error) {
	position, read, of := int64(0), "0", ""
	if cursor != "" {
		parts := strings.SplitN(cursor, " ", 3)
		if len(parts) != 3 {
			return nil, "", registry.StoreUnavailable("read queues", fmt.Errorf("cursor %.100q", cursor))
		}
		position, read, of = redisconn.Int(parts[0]), parts[1], parts[2]
	}
	c, err := s.conn.Do(ctx, "ZREVRANGE", queuesKey, position, position)
	if err != nil || len(c.Strings()) == 0 {
		return nil, "", err
	}
	tenant := c.Strings()[0]
	if tenant != of {
		read = "0"
	}
	page, err := s.conn.Eval(ctx, scriptQueueScan, queueKeys(tenant, "")[:3], read, limit)
	if err != nil {
		return nil, "", err
	}
	answer := page.Strings()
	if len(answer)%2 == 0 {
		return nil, "", page.ErrShape()
	}
	var calls []registry.QueuedCall
	for at := 1; at < len(answer); at += 2 {
		if q, err := parseQueued(tenant, answer[at], answer[at+1]); err == nil { // one that is not readable expires
			calls = append(calls, q)
		}
	}
	if answer[0] == "0" {
		return calls, fmt.Sprintf("%d 0 ", position+1), nil
	}
	return calls, fmt.Sprintf("%d %s %s", position, answer[0], tenant), nil
}

// QueueStats implements registry.QueueStore.
func (s *Store) QueueStats(ctx context.Context) (map[string]registry.QueueStats, error) {
	_, stats, err := s.due(ctx, 0, 0, 0)
	return stats, err
}

// EraseQueued implements registry.QueueStore. No index has the queued calls of an identity, because calls are many and
// erasures few.
func (s *Store) EraseQueued(ctx context.Context, tenant, identity string) (erased []string, err error) {
	cursor := "0"
	for {
		c, err := s.conn.Do(ctx, "HSCAN", queueKeys(tenant, "")[0], cursor, "COUNT", queueScan)
		if err != nil {
			return erased, err
		}
		parts, found, err := c.Parts(2)
		if err != nil || !found {
			return erased, err
		}
		for id, text := range redisconn.Map(parts[1]) {
			q, err := parseQueued(tenant, id, text)
			if err != nil || q.Identity != identity {
				continue // one that is not readable expires
			}
			if _, err := s.Dequeue(ctx, tenant, q.Device, id); err != nil {
				return erased, err
			}
			erased = append(erased, id)
		}
		if cursor = fmt.Sprint(parts[0]); cursor == "0" {
			return erased, nil
		}
	}
}

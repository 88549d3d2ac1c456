package redisstore

import (
	"context"
	"strings"

	"github.com/farhand/farhand/registry"
)

// groupCursorSeparator stands for offerSeparator in cursors, which travel in URLs. No tool name holds it.
const groupCursorSeparator = ":"

// offer is one distinct tool of a tenant.
type offer struct {
	name, hash string
	sessions   int
}

// Groups implements registry.Directory. The numbers are sizes of indexes: exact once the writes under way are done.
func (s *Store) Groups(ctx context.Context, q registry.GroupQuery) ([]registry.Group, string, error) {
	limit := pageSize(q.Limit)
	offers, err := s.readOffers(ctx, q, limit+1)
	if err != nil {
		return nil, "", unavailable("groups", err)
	}
	next := ""
	if len(offers) > limit {
		offers = offers[:limit]
		last := offers[limit-1]
		next = last.name + groupCursorSeparator + last.hash
	}
	if s.scrub.due() {
		s.scrubOffers(ctx, q.Tenant, offers)
	}
	if err := s.countOffers(ctx, q.Tenant, offers); err != nil {
		return nil, "", unavailable("groups", err)
	}
	wanted := make(map[string]bool)
	for _, o := range offers {
		if o.sessions > 0 {
			wanted[o.hash] = true
		}
	}
	specs, err := s.fetchSpecs(ctx, q.Tenant, wanted)
	if err != nil {
		return nil, "", unavailable("groups", err)
	}
	groups := make([]registry.Group, 0, len(wanted))
	for _, o := range offers {
		if spec, ok := specs[o.hash]; ok && o.sessions > 0 {
			groups = append(groups, registry.Group{Spec: spec, Sessions: o.sessions})
		}
	}
	return groups, next, nil
}

// readOffers returns up to limit distinct tools behind the query's cursor.
func (s *Store) readOffers(ctx context.Context, q registry.GroupQuery, limit int) ([]offer, error) {
	low, high := "-", "+"
	if q.Name != "" {
		low, high = "["+offerMember(q.Name, ""), "("+q.Name+"\x01"
	}
	if q.After != "" {
		after := strings.Replace(q.After, groupCursorSeparator, offerSeparator, 1)
		if q.Name == "" || after > offerMember(q.Name, "") {
			low = "(" + after
		}
	}
	b := s.conn.batch()
	c := b.do("ZRANGEBYLEX", offersIndex(q.Tenant), low, high, "LIMIT", 0, limit)
	if err := b.run(ctx); err != nil {
		return nil, err
	}
	var offers []offer
	for _, member := range toStrings(c.cmd.Val()) {
		if name, hash, ok := parseOfferMember(member); ok {
			offers = append(offers, offer{name: name, hash: hash})
		}
	}
	return offers, nil
}

// countOffers fills in how many sessions offer each tool, and removes tools nobody offers.
func (s *Store) countOffers(ctx context.Context, tenant string, offers []offer) error {
	b := s.conn.batch()
	sizes := make([]*call, len(offers))
	for i, o := range offers {
		sizes[i] = b.do("ZCARD", offerIndex(tenant, o.name, o.hash))
	}
	if err := b.run(ctx); err != nil {
		return err
	}
	var unused []offer
	for i := range offers {
		offers[i].sessions = int(sizes[i].int())
		if offers[i].sessions == 0 {
			unused = append(unused, offers[i])
		}
	}
	if err := s.removeOffers(ctx, tenant, unused); err != nil {
		s.log.Debug("unused tools not removed", "tenant", tenant, "error", err)
	}
	return nil
}

// removeOffers removes tools nobody offers. A session that begins to offer one at this moment enters the tool's own
// index before it enters the list of tools; so the index is looked at once more after the removal.
func (s *Store) removeOffers(ctx context.Context, tenant string, offers []offer) error {
	if len(offers) == 0 {
		return nil
	}
	b := s.conn.batch()
	for _, o := range offers {
		b.do("ZREM", offersIndex(tenant), offerMember(o.name, o.hash))
	}
	b.then()
	sizes := make([]*call, len(offers))
	for i, o := range offers {
		sizes[i] = b.do("ZCARD", offerIndex(tenant, o.name, o.hash))
	}
	if err := b.run(ctx); err != nil {
		return err
	}
	b = s.conn.batch()
	again := false
	for i, o := range offers {
		if sizes[i].int() > 0 {
			again = true
			b.eval(scriptIndexAdd, []string{offersIndex(tenant)}, s.indexTTL, 0, offerMember(o.name, o.hash))
		}
	}
	if !again {
		return nil
	}
	return b.run(ctx)
}

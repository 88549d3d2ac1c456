package redisstore

import (
	"context"
	"net/url"
	"slices"
	"time"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// Credentials implements registry.CredentialStore.
func (s *Store) Credentials(
	ctx context.Context, q registry.CredentialQuery,
) ([]registry.Credential, string, error) {
	members, next, err := s.credentialMembers(ctx, q)
	if err != nil {
		return nil, "", err
	}
	all, err := s.readMembers(ctx, q.Tenant, members)
	if err != nil {
		return nil, "", err
	}
	return slices.DeleteFunc(all, func(c registry.Credential) bool { return !q.Selects(c) }), next, nil
}

// PairedDevices implements registry.CredentialStore. It costs one command if none of the ids is paired.
func (s *Store) PairedDevices(
	ctx context.Context, tenant string, deviceIDs ...string,
) ([]registry.Credential, error) {
	var fields []any
	for _, id := range deviceIDs {
		if id != "" {
			fields = append(fields, redisconn.Escape(id))
		}
	}
	if len(fields) == 0 {
		return nil, nil
	}
	answer, err := s.conn.Do(ctx, append([]any{"HMGET", credentialsKeys(tenant)[3]}, fields...)...)
	if err != nil {
		return nil, redisconn.Unavailable("look up paired devices", err)
	}
	texts := answer.Strings()
	slices.Sort(texts)
	var members []credentialMember
	for _, text := range slices.Compact(texts) {
		if m, ok := parseCredentialMember(text); ok { // a missing id yields an empty text, which is no member
			members = append(members, m)
		}
	}
	return s.readMembers(ctx, tenant, members)
}

// PairedIDs implements registry.CredentialStore.
func (s *Store) PairedIDs(ctx context.Context, tenant string) ([]string, error) {
	answer, err := s.conn.Do(ctx, "HKEYS", credentialsKeys(tenant)[3])
	if err != nil {
		return nil, redisconn.Unavailable("list paired devices", err)
	}
	ids := answer.Strings()
	for i, escaped := range ids {
		if ids[i], err = url.PathUnescape(escaped); err != nil {
			return nil, registry.AsError(err)
		}
	}
	return ids, nil
}

// readMembers reads the credentials of members of a tenant's lists. It removes members without a credential from the
// lists.
func (s *Store) readMembers(
	ctx context.Context, tenant string, members []credentialMember,
) ([]registry.Credential, error) {
	if len(members) == 0 {
		return nil, nil
	}
	pipe := s.conn.Pipeline()
	answers := make([]*redisconn.Command, len(members))
	for i, m := range members {
		answers[i] = pipe.Do("HGETALL", credentialKey(m.digest))
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, redisconn.Unavailable("read credentials", err)
	}
	var found []registry.Credential
	var gone []credentialMember
	for i, m := range members {
		hash := answers[i].Map()
		if len(hash) == 0 {
			gone = append(gone, m)
			continue
		}
		c, err := parseCredential(m.digest, hash)
		if err != nil {
			s.log.Warn("credential not readable; it is left out", "credential", m.id, "error", err)
			continue
		}
		found = append(found, c)
	}
	if len(gone) > 0 {
		if err := s.unlistCredentials(ctx, tenant, gone...); err != nil {
			s.log.Debug("credentials that are gone stay listed", "error", err)
		}
	}
	return found, nil
}

// credentialMembers reads a page of a list. next is the id to continue after; it is empty at the end of the list.
func (s *Store) credentialMembers(
	ctx context.Context, q registry.CredentialQuery,
) (members []credentialMember, next string, err error) {
	keys, limit := credentialsKeys(q.Tenant), pageSize(q.Limit)
	key, prefix, parse := keys[0], "", parseCredentialMember
	if q.DeviceID != "" {
		key, prefix, parse = keys[1], redisconn.Escape(q.DeviceID)+" ", parseDeviceMember
	}
	from, to := "["+prefix, "+"
	if q.After != "" {
		from = "(" + prefix + q.After + "!" // sorts after all members of the id
	}
	if q.DeviceID != "" {
		to = "(" + redisconn.Escape(q.DeviceID) + "!"
	}
	answer, err := s.conn.Do(ctx, "ZRANGEBYLEX", key, from, to, "LIMIT", 0, limit+1)
	if err != nil {
		return nil, "", redisconn.Unavailable("list credentials", err)
	}
	texts := answer.Strings()
	for i, text := range texts {
		m, ok := parse(text)
		switch {
		case i == limit:
			return members, next, nil
		case ok:
			members, next = append(members, m), m.id
		}
	}
	return members, "", nil
}

// AppendChange implements registry.CredentialStore. It stores a revocation before it appends to the log. So a reader
// misses nothing if it reads the log up to some place, and the revocations after that.
func (s *Store) AppendChange(
	ctx context.Context, c registry.CredentialChange,
) (registry.CredentialChange, error) {
	if err := c.Validate(); err != nil {
		return registry.CredentialChange{}, err
	}
	if err := s.remember(ctx, c); err != nil {
		return registry.CredentialChange{}, err
	}
	answer, err := s.conn.Eval(ctx, scriptChangeAppend, []string{changesKey, lastChangeKey},
		s.changeTTL, registry.ChangeCap, c.Tenant, string(c.Kind), c.ID, flag(c.Revoked))
	if err != nil {
		return registry.CredentialChange{}, redisconn.Unavailable("append change", err)
	}
	place := answer.List()
	if len(place) != 2 {
		return registry.CredentialChange{}, redisconn.Unavailable("append change", answer.ErrShape())
	}
	id, _ := place[0].(string)
	if c.Place, err = registry.ParseFeedID(id); err != nil {
		return registry.CredentialChange{}, err
	}
	c.Seq, c.At = redisconn.Int(place[1]), time.UnixMilli(c.Place.Milli).UTC()
	return c, nil
}

// remember stores a revocation for its tenant. Other changes are in the log only.
func (s *Store) remember(ctx context.Context, c registry.CredentialChange) error {
	if !c.Remembered() {
		return nil
	}
	answer, err := s.conn.Eval(ctx, scriptRevocationMark, []string{revokedKey(c.Tenant, c.Kind)},
		s.changeTTL, s.revocations, c.ID)
	if err != nil {
		return redisconn.Unavailable("remember revocation", err)
	}
	if wait := answer.Int(); wait > 0 {
		return registry.ErrTooManyRevocations(c.Kind, s.revocations, time.Duration(wait)*time.Millisecond)
	}
	return nil
}

// Revocations implements registry.CredentialStore. It takes one round trip.
func (s *Store) Revocations(ctx context.Context, tenant string) ([]registry.CredentialChange, error) {
	pipe, kinds := s.conn.Pipeline(), registry.RememberedKinds()
	answers := make([]*redisconn.Command, len(kinds))
	for i, kind := range kinds {
		answers[i] = pipe.Do("ZRANGE", revokedKey(tenant, kind), 0, -1, "WITHSCORES")
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, redisconn.Unavailable("read revocations", err)
	}
	var all []registry.CredentialChange
	for i, kind := range kinds {
		texts := answers[i].Strings()
		for n := 0; n+1 < len(texts); n += 2 {
			all = append(all, registry.CredentialChange{
				At: timeOf(texts[n+1], time.UnixMilli), Tenant: tenant, Kind: kind, ID: texts[n], Revoked: true,
			})
		}
	}
	return all, nil
}

// Changes implements registry.CredentialStore. It takes one round trip.
func (s *Store) Changes(ctx context.Context, after registry.FeedID, limit int) (registry.ChangePage, error) {
	pipe := s.conn.Pipeline()
	last := pipe.Do("GET", lastChangeKey) // first: changes appended meanwhile must not count as read
	entries := pipe.Do("XRANGE", changesKey, "("+after.String(), "+", "COUNT", pageSize(limit))
	if err := pipe.Exec(ctx); err != nil {
		return registry.ChangePage{}, redisconn.Unavailable("read changes", err)
	}
	page := registry.ChangePage{Last: last.Int()}
	for _, raw := range entries.List() {
		entry, _ := raw.([]any)
		if len(entry) != 2 {
			return registry.ChangePage{}, redisconn.Unavailable("read changes", entries.ErrShape())
		}
		place, _ := entry[0].(string)
		c, err := parseChange(place, redisconn.Map(entry[1]))
		if err != nil {
			return registry.ChangePage{}, redisconn.Unavailable("read changes", err)
		}
		page.Changes = append(page.Changes, c)
	}
	return page, nil
}

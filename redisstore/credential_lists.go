package redisstore

import (
	"context"
	"net/url"
	"slices"

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

// PairedDevices implements registry.CredentialStore. Ids that nobody paired cost one command.
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
		if m, ok := parseCredentialMember(text); ok { // what is not there is empty, and no member
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

// readMembers reads the credentials of members of a tenant's lists. Members that lead nowhere leave the lists.
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

// credentialMembers reads a part of a list, and returns the id to go on after, empty at its end.
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
		from = "(" + prefix + q.After + "!" // which sorts after all members of the id
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

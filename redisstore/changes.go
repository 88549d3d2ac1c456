package redisstore

import (
	"context"
	"slices"
	"time"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// AppendChange implements registry.CredentialStore. It stores a revocation before it appends to the log. So a reader
// misses nothing if it reads the log up to some place, and the revocations after that.
func (s *Store) AppendChange(ctx context.Context, c registry.CredentialChange) (registry.CredentialChange, error) {
	if err := c.Validate(); err != nil {
		return registry.CredentialChange{}, err
	}
	if err := s.remember(ctx, c); err != nil {
		return registry.CredentialChange{}, err
	}
	fields, userSignature := []string{c.Tenant, string(c.Kind), c.ID, flag(c.Revoked), c.Device}, ""
	if c.User != "" { // earlier releases check the other signature, and do not know the user
		userSignature = s.signer.SignEntry(append(slices.Clip(fields), c.User)...)
	}
	place, err := s.conn.Ask(ctx, scriptChangeAppend, 2, []string{changesKey, lastChangeKey},
		millis(s.opts.ChangeTTL), registry.ChangeCap, c.Tenant, string(c.Kind), c.ID, flag(c.Revoked), c.Device,
		s.signer.SignEntry(fields...), c.User, userSignature)
	if err != nil {
		return registry.CredentialChange{}, err
	}
	if c.Place, err = registry.ParseFeedID(redisconn.Text(place[0])); err != nil {
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
		millis(s.opts.ChangeTTL), s.opts.Revocations, c.ID)
	if err != nil {
		return err
	}
	if wait := answer.Int(); wait > 0 {
		return registry.ErrTooManyRevocations(c.Kind, s.opts.Revocations, time.Duration(wait)*time.Millisecond)
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
		return nil, err
	}
	var all []registry.CredentialChange
	for i, kind := range kinds {
		texts := answers[i].Strings()
		for n := 0; n+1 < len(texts); n += 2 {
			at := time.UnixMilli(redisconn.Int(texts[n+1])).UTC()
			all = append(all, registry.CredentialChange{
				At: at, Tenant: tenant, Kind: kind, ID: texts[n], Revoked: true,
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
		return registry.ChangePage{}, err
	}
	page := registry.ChangePage{Last: last.Int()}
	for _, raw := range entries.List() {
		entry, _ := raw.([]any)
		if len(entry) != 2 {
			return registry.ChangePage{}, entries.ErrShape()
		}
		c, err := s.parseChange(redisconn.Text(entry[0]), redisconn.Map(entry[1]))
		if err != nil {
			return registry.ChangePage{}, err
		}
		page.Changes = append(page.Changes, c)
	}
	return page, nil
}

// parseChange reads an entry of the log of changes. An entry of another release may have an unknown kind or lack a
// number, and one of an unknown version lacks all: its reader sees that it has missed something. An entry that the
// fleet has not signed is of no kind: its reader reads everything again, and takes nothing from it.
func (s *Store) parseChange(place string, fields map[string]string) (registry.CredentialChange, error) {
	id, err := registry.ParseFeedID(place)
	if err != nil {
		return registry.CredentialChange{}, err
	}
	at := time.UnixMilli(id.Milli).UTC()
	if s.conn.Forms().Check(redisconn.FormChange, fields[redisconn.FormField]) != nil {
		return registry.CredentialChange{Place: id, At: at}, nil // its signature may also have another form
	}
	signed, signature := []string{fields["t"], fields["k"], fields["i"], fields["r"], fields["d"]}, fields["s"]
	if user := fields["u"]; user != "" {
		signed, signature = append(signed, user), fields["w"]
	}
	if !s.signer.OpenEntry(at, signature, signed...) {
		return registry.CredentialChange{Place: id, Seq: redisconn.Int(fields["q"]), At: at}, nil
	}
	return registry.CredentialChange{
		Place: id, Seq: redisconn.Int(fields["q"]), At: at, Tenant: fields["t"],
		Kind: registry.ChangeKind(fields["k"]), ID: fields["i"], Revoked: fields["r"] == "1",
		Device: fields["d"], User: fields["u"],
	}, nil
}

package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// storedGrant is a grant as it is stored. When it was made follows from when it expires.
type storedGrant struct {
	registry.Grant
	LifeMS    int64     `json:"life_ms"`
	CreatedAt *struct{} `json:"created_at,omitempty"` // hides those of the grant
	ExpiresAt *struct{} `json:"expires_at,omitempty"`
}

// PutGrant implements registry.GrantStore.
func (s *Store) PutGrant(ctx context.Context, g registry.Grant, life time.Duration) (registry.Grant, error) {
	text, err := encodeJSON(storedGrant{Grant: g, LifeMS: life.Milliseconds()})
	if err != nil {
		return g, registry.AsError(err)
	}
	c, err := s.conn.Eval(ctx, scriptGrantPut, grantKeys(g.Tenant), g.ID, g.Binding(), string(text), millis(life),
		registry.MaxGrants)
	if err != nil {
		return g, redisconn.Unavailable("put grant", err)
	}
	answer, found, err := c.StringParts(2)
	switch {
	case err != nil:
		return g, redisconn.Unavailable("put grant", err)
	case !found:
		return g, registry.ErrManyGrants
	}
	g.CreatedAt, g.ExpiresAt = fromMillis(answer[0]), fromMillis(answer[1])
	return g, nil
}

// FindGrant implements registry.GrantStore.
func (s *Store) FindGrant(ctx context.Context, tenant string, bindings ...string) (registry.Grant, error) {
	args := make([]any, len(bindings))
	for i, b := range bindings {
		args[i] = b
	}
	c, err := s.conn.Eval(ctx, scriptGrantFind, grantKeys(tenant), args...)
	if err != nil {
		return registry.Grant{}, redisconn.Unavailable("find grant", err)
	}
	answer, found, err := c.StringParts(2)
	switch {
	case err != nil:
		return registry.Grant{}, redisconn.Unavailable("find grant", err)
	case !found:
		return registry.Grant{}, registry.ErrNoGrant
	}
	g, err := parseGrant(answer[0], answer[1])
	return g, redisconn.Unavailable("find grant", err)
}

func parseGrant(text, expires string) (registry.Grant, error) {
	var stored storedGrant
	if err := json.Unmarshal([]byte(text), &stored); err != nil {
		return registry.Grant{}, fmt.Errorf("grant: %w", err)
	}
	g := stored.Grant
	g.ExpiresAt = fromMillis(expires)
	g.CreatedAt = g.ExpiresAt.Add(-time.Duration(stored.LifeMS) * time.Millisecond)
	return g, nil
}

// Grants implements registry.GrantStore.
func (s *Store) Grants(ctx context.Context, tenant string) ([]registry.Grant, error) {
	c, err := s.conn.Eval(ctx, scriptGrantList, grantKeys(tenant), registry.MaxGrants)
	if err != nil {
		return nil, redisconn.Unavailable("list grants", err)
	}
	all := []registry.Grant{}
	for pair := range slices.Chunk(c.Strings(), 2) {
		if len(pair) != 2 {
			return nil, redisconn.Unavailable("list grants", c.ErrShape())
		}
		g, err := parseGrant(pair[0], pair[1])
		if err != nil {
			return nil, redisconn.Unavailable("list grants", err)
		}
		all = append(all, g)
	}
	return all, nil
}

// RevokeGrant implements registry.GrantStore.
func (s *Store) RevokeGrant(ctx context.Context, tenant, id string) (registry.Grant, error) {
	c, err := s.conn.Do(ctx, "HGET", grantKeys(tenant)[0], id)
	if err != nil {
		return registry.Grant{}, redisconn.Unavailable("revoke grant", err)
	}
	text, ok := c.Text()
	if !ok {
		return registry.Grant{}, registry.ErrNoGrant
	}
	g, err := parseGrant(text, "")
	if err != nil {
		return g, redisconn.Unavailable("revoke grant", err)
	}
	c, err = s.conn.Eval(ctx, scriptGrantRevoke, grantKeys(tenant), id, g.Binding())
	if err != nil {
		return g, redisconn.Unavailable("revoke grant", err)
	}
	expires, _ := c.Text()
	if expires == "" {
		return registry.Grant{}, registry.ErrNoGrant
	}
	g, err = parseGrant(text, expires)
	return g, redisconn.Unavailable("revoke grant", err)
}

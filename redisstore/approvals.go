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

// maxDueTenants is how many tenants are checked at a time for due approvals.
const maxDueTenants = 500

// verdictFields is how many fields verdict() in lua/approval_base.lua returns. approvalFields is how many whole()
// returns.
const (
	verdictFields  = 4
	approvalFields = 11
)

// CreateApproval implements registry.ApprovalStore.
func (s *Store) CreateApproval(
	ctx context.Context, a registry.Approval, life time.Duration, request []byte,
) (registry.Approval, error) {
	text, err := encodeJSON(a)
	if err != nil {
		return a, registry.AsError(err)
	}
	kept := millis(registry.ApprovalRetained)
	if a.Deferred { // before the approval: without its tenant it would never be settled
		keys := []string{approvalTenantsKey}
		if _, err := s.conn.Eval(ctx, scriptApprovalTenant, keys, a.Tenant, millis(life)+kept); err != nil {
			return a, redisconn.Unavailable("create approval", err)
		}
	}
	keys := approvalKeys(a.Tenant, a.ID, a.Requester.Key())
	c, err := s.conn.Eval(ctx, scriptApprovalCreate, keys, a.ID, millis(life), kept,
		registry.MaxPending, registry.MaxPendingOfOne, flag(a.Deferred), string(text), a.Args.String(), string(request),
		flag(a.By == registry.ApproveTwo))
	if err != nil {
		return a, redisconn.Unavailable("create approval", err)
	}
	answer := c.Strings()
	switch {
	case len(answer) == 2:
		a.CreatedAt, a.ExpiresAt = fromMillis(answer[0]), fromMillis(answer[1])
		a.Verdict = registry.Verdict{State: registry.ApprovalPending}
		return a, nil
	case len(answer) == 1 && answer[0] == "requester":
		return a, registry.ErrManyOfOne
	case len(answer) == 1 && answer[0] == "tenant":
		return a, registry.ErrManyApprovals
	default:
		return a, redisconn.Unavailable("create approval", c.ErrShape())
	}
}

// Approval implements registry.ApprovalStore.
func (s *Store) Approval(ctx context.Context, tenant, id string) (registry.Approval, error) {
	a, _, err := s.readApproval(ctx, tenant, id, false)
	return a, err
}

// ApprovalRequest implements registry.ApprovalStore.
func (s *Store) ApprovalRequest(ctx context.Context, tenant, id string) (registry.Approval, []byte, error) {
	return s.readApproval(ctx, tenant, id, true)
}

func (s *Store) readApproval(
	ctx context.Context, tenant, id string, request bool,
) (registry.Approval, []byte, error) {
	c, err := s.conn.Eval(ctx, scriptApprovalRead, []string{approvalKey(tenant, id)}, "1", flag(request))
	if err != nil {
		return registry.Approval{}, nil, redisconn.Unavailable("read approval", err)
	}
	fields, found, err := c.StringParts(approvalFields + 1)
	if err == nil && !found {
		return registry.Approval{}, nil, registry.ErrNoApproval
	}
	var a registry.Approval
	if err == nil {
		a, err = parseApproval(fields)
	}
	if err != nil {
		return registry.Approval{}, nil, redisconn.Unavailable("read approval", err)
	}
	return a, []byte(fields[approvalFields]), nil
}

// parseApproval reads what whole() in lua/approval_base.lua returns.
func parseApproval(fields []string) (a registry.Approval, err error) {
	if len(fields) < approvalFields {
		return a, fmt.Errorf("approval of %d fields", len(fields))
	}
	if err := json.Unmarshal([]byte(fields[4]), &a); err != nil {
		return a, fmt.Errorf("approval: %w", err)
	}
	a.Verdict = parseVerdict(fields[:verdictFields])
	a.CreatedAt, a.ExpiresAt = fromMillis(fields[5]), fromMillis(fields[6])
	a.AllowedBy, a.First.Person = fields[8], fields[9]
	if fields[10] != "" {
		a.First.Voter = []byte(fields[10])
	}
	if fields[7] != "" {
		if a.Args, err = registry.ParseJSON([]byte(fields[7])); err != nil {
			return a, fmt.Errorf("arguments of an approval: %w", err)
		}
	}
	return a, nil
}

// parseVerdict reads the verdictFields that verdict() in lua/approval_base.lua returns.
func parseVerdict(fields []string) registry.Verdict {
	return registry.Verdict{
		State: registry.ApprovalState(fields[0]), DecidedBy: fields[1], DecidedAt: fromMillis(fields[2]),
		Scope: registry.ApprovalScope(fields[3]),
	}
}

// Verdicts implements registry.ApprovalStore.
func (s *Store) Verdicts(ctx context.Context, refs []registry.ApprovalRef) ([]registry.Verdict, error) {
	pipe, commands := s.conn.Pipeline(), make([]*redisconn.Command, len(refs))
	for i, ref := range refs {
		commands[i] = pipe.Eval(scriptApprovalVerdict, []string{approvalKey(ref.Tenant, ref.ID)})
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, redisconn.Unavailable("read verdicts", err)
	}
	verdicts := make([]registry.Verdict, len(refs))
	for i, c := range commands {
		fields, found, err := c.StringParts(verdictFields)
		if err == nil && !found {
			err = c.ErrShape() // a missing approval has an empty verdict
		}
		if err != nil {
			return nil, redisconn.Unavailable("read verdicts", err)
		}
		verdicts[i] = parseVerdict(fields)
	}
	return verdicts, nil
}

// PendingApprovals implements registry.ApprovalStore.
func (s *Store) PendingApprovals(ctx context.Context, tenant string) ([]registry.Approval, error) {
	c, err := s.conn.Eval(ctx, scriptApprovalDue, []string{pendingKey(tenant)}, "", registry.MaxPending, 0)
	if err != nil {
		return nil, redisconn.Unavailable("list approvals", err)
	}
	pipe, commands := s.conn.Pipeline(), []*redisconn.Command(nil)
	for _, id := range c.Strings() {
		commands = append(commands, pipe.Eval(scriptApprovalRead, []string{approvalKey(tenant, id)}, "", ""))
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, redisconn.Unavailable("list approvals", err)
	}
	pending := []registry.Approval{}
	for _, c := range commands {
		fields, found, err := c.StringParts(approvalFields + 1)
		if err == nil && !found {
			continue
		}
		var a registry.Approval
		if err == nil {
			a, err = parseApproval(fields)
		}
		if err != nil { // it must not hide the others; it expires like them
			s.log.Warn("approval not readable; it is not listed", "tenant", tenant, "error", err)
			continue
		}
		if a.State == registry.ApprovalPending {
			pending = append(pending, a)
		}
	}
	return pending, nil
}

// DecideApproval implements registry.ApprovalStore.
func (s *Store) DecideApproval(
	ctx context.Context, tenant, id string, vote registry.Vote, lapsed string, v registry.Verdict,
) (registry.Approval, bool, error) {
	known, err := s.Approval(ctx, tenant, id) // its requester determines the keys
	if err != nil {
		return known, false, err
	}
	c, err := s.conn.Eval(ctx, scriptApprovalDecide, approvalKeys(tenant, id, known.Requester.Key()), id,
		string(v.State), v.DecidedBy, string(v.Scope), millis(registry.ApprovalRetained),
		vote.Person, string(vote.Voter), lapsed)
	if err != nil {
		return known, false, redisconn.Unavailable("decide approval", err)
	}
	answer, found, err := c.Parts(2)
	if err == nil && !found {
		return known, false, registry.ErrNoApproval
	}
	if err != nil {
		return known, false, redisconn.Unavailable("decide approval", err)
	}
	a, err := parseApproval(redisconn.Strings(answer[1]))
	return a, redisconn.Int(answer[0]) == 1, redisconn.Unavailable("decide approval", err)
}

// CountWrongAnswer implements registry.ApprovalStore.
func (s *Store) CountWrongAnswer(ctx context.Context, tenant, id string) (int, error) {
	c, err := s.conn.Eval(ctx, scriptApprovalWrong, []string{approvalKey(tenant, id)})
	if err != nil {
		return 0, redisconn.Unavailable("count an answer", err)
	}
	return int(c.Int()), nil
}

// dueTenants returns tenants that may have due approvals. If there are more than maxDueTenants, each call continues
// after the previous one, so that every tenant is found.
func (s *Store) dueTenants(ctx context.Context) ([]string, error) {
	skipped := s.dueSkipped.Load()
	c, err := s.conn.Eval(ctx, scriptApprovalDue, []string{approvalTenantsKey}, "", maxDueTenants, skipped)
	if err != nil {
		return nil, redisconn.Unavailable("find due approvals", err)
	}
	tenants := c.Strings()
	if skipped += int64(len(tenants)); len(tenants) < maxDueTenants {
		skipped = 0
	}
	s.dueSkipped.Store(skipped)
	return tenants, nil
}

// DueApprovals implements registry.ApprovalStore.
func (s *Store) DueApprovals(ctx context.Context, limit int) ([]registry.ApprovalRef, error) {
	tenants, err := s.dueTenants(ctx)
	if err != nil {
		return nil, err
	}
	pipe, commands := s.conn.Pipeline(), make([]*redisconn.Command, len(tenants))
	for i, tenant := range tenants {
		commands[i] = pipe.Eval(scriptApprovalDue, []string{dueKey(tenant)}, "1", limit, 0)
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, redisconn.Unavailable("find due approvals", err)
	}
	var due []registry.ApprovalRef
	for i, c := range commands {
		for _, id := range c.Strings() {
			if len(due) < limit {
				due = append(due, registry.ApprovalRef{Tenant: tenants[i], ID: id})
			}
		}
	}
	return due, nil
}

// SettleApproval implements registry.ApprovalStore.
func (s *Store) SettleApproval(ctx context.Context, tenant, id string) error {
	pipe := s.conn.Pipeline()
	pipe.Do("ZREM", dueKey(tenant), id)
	pipe.Do("HDEL", approvalKey(tenant, id), "request")
	return redisconn.Unavailable("settle approval", pipe.Exec(ctx))
}

// storedGrant is a grant as it is stored. Its creation time is computed from its expiry and LifeMS.
type storedGrant struct {
	registry.Grant
	LifeMS    int64     `json:"life_ms"`
	CreatedAt *struct{} `json:"created_at,omitempty"` // hides the grant's field
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

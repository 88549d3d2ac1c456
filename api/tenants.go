package api

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/budget"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/registry"
)

// Tenants lists the tenants of the fleet. registry.Store implements it.
type Tenants interface {
	registry.TenantStore
	ReadSpent(ctx context.Context, days ...registry.SpentDay) ([]registry.Spent, error)
}

// Budgets says what an identity may spend today. *budget.Ledger implements it.
type Budgets interface {
	Of(ctx context.Context, who auth.Identity) ([]budget.Standing, error)
}

const tenantDays = 30 // of a tenant's details

// tenantRoutes returns the routes of fleet operators. None of them shows what belongs to a tenant.
func (h *handler) tenantRoutes() []route {
	const one = "/api/tenants/:tenant"
	return []route{
		{http.MethodGet, "/api/tenants", operators, []string{"limit", "cursor"}, h.listTenants},
		{http.MethodGet, one, operators, nil, h.getTenant},
		{http.MethodPost, one + "/keys", operators, nil, h.audited(registry.AuditTenantKey, h.createFirstKey)},
		{http.MethodPut, one + "/budget", operators, nil, h.audited(registry.AuditTenantBudget, h.setBudget)},
	}
}

func (h *handler) listTenants(c *gin.Context, q *params) error {
	limit, after := q.limit(), q.cursor(cursorTenants).Name
	if err := q.failed(); err != nil {
		return err
	}
	ctx := storeContext(c)
	page, next, err := h.Tenants.Tenants(ctx, after, limit)
	if err != nil {
		return err
	}
	rows, err := h.tenantRows(ctx, page)
	if err != nil {
		return err
	}
	return h.writeUncached(c, http.StatusOK, wire.TenantList{
		Tenants: rows, NextCursor: nextCursor(cursorTenants, next),
	})
}

// tenantRows adds the numbers of today to tenants.
func (h *handler) tenantRows(ctx context.Context, page []registry.Tenant) ([]wire.Tenant, error) {
	today := registry.UsageDay(time.Now())
	names, days := make([]string, len(page)), make([]registry.SpentDay, len(page))
	for i, t := range page {
		names[i], days[i] = t.Name, registry.SpentDay{Tenant: t.Name, Day: today}
	}
	spent, err := h.Tenants.ReadSpent(ctx, days...)
	if err != nil {
		return nil, err
	}
	devices, err := h.Tenants.CountSessions(ctx, names...)
	if err != nil {
		return nil, err
	}
	rows := make([]wire.Tenant, len(page))
	for i, t := range page {
		rows[i] = wire.Tenant{
			Tenant: t.Name, Since: shownTime(t.Since), Used: t.Used, Devices: devices[i], Today: spent[i],
			Budget: wire.DayBudget(t.Budget), BudgetBy: t.By, BudgetAt: optionalTime(t.SetAt),
		}
	}
	return rows, nil
}

func (h *handler) getTenant(c *gin.Context, _ *params) error {
	ctx, name := storeContext(c), c.Param("tenant")
	found, err := h.Tenants.TenantsOf(ctx, name)
	if err == nil && found[0].Since.IsZero() {
		err = registry.ErrNoTenant
	}
	if err != nil {
		return err
	}
	rows, err := h.tenantRows(ctx, found)
	if err != nil {
		return err
	}
	days := make([]registry.SpentDay, tenantDays)
	for i := range days {
		days[i] = registry.SpentDay{Tenant: name, Day: registry.UsageDay(time.Now().AddDate(0, 0, -i))}
	}
	spent, err := h.Tenants.ReadSpent(ctx, days...)
	if err != nil {
		return err
	}
	details := wire.TenantDetails{Tenant: rows[0], Days: []wire.TenantDay{}}
	for i, s := range spent {
		if s != (registry.Spent{}) {
			details.Days = append(details.Days, wire.TenantDay{Day: days[i].Day, Spent: s})
		}
	}
	return h.writeUncached(c, http.StatusOK, details)
}

// errTenantUsed is the error for the first key of a tenant that is not new. An operator with a key of a tenant in use
// could read its content.
var errTenantUsed = registry.Errorf(registry.CodeForbidden, "This tenant has keys, or was used already: its own role "+
	"admin creates further keys. If it has no key left, use FARHAND_TOKEN or the store (farhand keys create --tenant).")

// createFirstKey creates the first key of a tenant, and lists the tenant.
func (h *handler) createFirstKey(c *gin.Context, _ *params) error {
	tenant := c.Param("tenant")
	noteAudit(c, auditDetail{target: tenant})
	r, err := readAs(h, c, parseFirstKey)
	if err != nil {
		return err
	}
	r.Tenant = tenant
	if err := h.mayChangeKeys(c); err != nil {
		return err
	}
	ctx := storeContext(c)
	if err := h.checkUnused(ctx, tenant); err != nil {
		return err
	}
	secret, made, err := h.issuer().CreateTenantKey(ctx, caller(c), r)
	if err != nil {
		return err
	}
	h.tellTenant(c, tenant, registry.AuditTenantKey, "a fleet operator created the first key "+made.ID)
	noteAudit(c, auditDetail{target: tenant, reason: "key " + made.ID})
	return h.writeUncached(c, http.StatusCreated, wire.CreatedKey{
		ID: made.ID, Key: secret, KeyAttributes: keyAttributesOf(made),
	})
}

// checkUnused lists a tenant. It fails if the tenant has keys or devices, or if its audit log shows that it was used,
// also with tokens of an identity provider and before it was listed.
func (h *handler) checkUnused(ctx context.Context, tenant string) error {
	if tenant == registry.DefaultTenant {
		return errTenantUsed
	}
	_, err := h.Tenants.ChangeTenant(ctx, tenant, func(t *registry.Tenant) error {
		if t.Used {
			return errTenantUsed
		}
		return nil
	})
	if err != nil {
		return err
	}
	held, _, err := h.Credentials.Credentials(ctx, registry.CredentialQuery{Tenant: tenant, Limit: 1})
	if err == nil && len(held) > 0 {
		err = errTenantUsed
	}
	if err != nil {
		return err
	}
	if err := h.checkEmpty(ctx, tenant); err != nil {
		return err
	}
	lines, more, err := h.AuditLog.ReadAudit(ctx, registry.AuditQuery{Tenant: tenant})
	if err == nil && (more != "" || slices.ContainsFunc(lines, func(e registry.AuditEntry) bool {
		return e.Action != registry.AuditTenantKey && e.Action != registry.AuditTenantBudget
	})) {
		err = errTenantUsed
	}
	return err
}

// checkEmpty fails if a tenant has devices or conversations. They may be older than the list of tenants.
func (h *handler) checkEmpty(ctx context.Context, tenant string) error {
	devices, err := h.Tenants.CountSessions(ctx, tenant)
	if err != nil {
		return err
	}
	said, next, err := h.Conversations.ListConversations(ctx, registry.ConversationQuery{Tenant: tenant, Limit: 1})
	if err == nil && (devices[0] > 0 || len(said) > 0 || next != nil) {
		err = errTenantUsed
	}
	return err
}

func parseFirstKey(body []byte) (auth.KeyRequest, error) {
	r, err := readStrict[wire.FirstKeyRequest](orNothing(body), map[string]string{"expires_in": wantSeconds})
	if err != nil {
		return auth.KeyRequest{}, err
	}
	k := auth.KeyRequest{Name: r.said.Name}
	if r.has("expires_in") {
		k.Expires, err = expiresIn(r.said.ExpiresIn)
	}
	return k, err
}

// setBudget replaces the budget of a tenant, and lists the tenant.
func (h *handler) setBudget(c *gin.Context, _ *params) error {
	tenant := c.Param("tenant")
	noteAudit(c, auditDetail{target: tenant})
	set, err := readAs(h, c, parseBudget)
	if err != nil {
		return err
	}
	if err := h.mayChangeKeys(c); err != nil {
		return err
	}
	ctx := storeContext(c)
	changed, err := h.Tenants.ChangeTenant(ctx, tenant, func(t *registry.Tenant) error {
		t.Budget, t.By, t.SetAt = set, caller(c).Credential, time.Now().UTC().Truncate(time.Second)
		return nil
	})
	if err != nil {
		return err
	}
	text := budget.Text(set)
	h.tellTenant(c, tenant, registry.AuditTenantBudget, "a fleet operator set the budget: "+text)
	noteAudit(c, auditDetail{target: tenant, reason: text})
	rows, err := h.tenantRows(ctx, []registry.Tenant{changed})
	if err != nil {
		return err
	}
	return h.writeUncached(c, http.StatusOK, rows[0])
}

func parseBudget(body []byte) (registry.DayBudget, error) {
	r, err := readRequest[wire.DayBudget](body, map[string]string{
		"tenant": "an object of whole numbers", "identity": "an object of whole numbers",
		"warn_percent": "a whole number from 1 to 100",
	})
	if err != nil {
		return registry.DayBudget{}, err
	}
	for _, name := range []string{"tenant", "identity"} { // a mistyped limit would limit nothing
		if text, ok := r.fields.get(name); ok {
			if _, err := readObject(text, name, fieldsOf[registry.Spent]()...); err != nil {
				return registry.DayBudget{}, err
			}
		}
	}
	set := registry.DayBudget(r.said)
	return set, set.Validate()
}

// tellTenant records in the audit log of a tenant what an operator did to it.
func (h *handler) tellTenant(c *gin.Context, tenant, action, reason string) {
	who := caller(c)
	if tenant == who.Tenant {
		return
	}
	h.Audit.Note(registry.AuditEntry{
		Tenant: tenant, Actor: who.Actor(), Action: action, Outcome: registry.AuditAllowed, Target: tenant,
		Reason: reason,
	})
}

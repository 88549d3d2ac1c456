package tenants

import (
	"context"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

// Spending implements registry.SpendingStore on documents, for stores whose documents are in their own process: each
// TenantCharge reads and writes one document for each charge.
type Spending struct {
	docs documents.Store
	ttl  time.Duration // of the sums of a tenant
	most int64         // identities of a tenant with a sum of their own
}

// NewSpending returns sums on documents.
func NewSpending(docs documents.Store, limits registry.Limits) Spending {
	return Spending{docs, limits.UsageTTL, int64(limits.UsageRows)}
}

// spenderLife is longer than the day of an identity's sum.
const spenderLife = 48 * time.Hour

func sums(tenant string) documents.Space { return documents.Space{Tenant: tenant, Kind: "spent"} }

// sumID names the sum of a charge on a day.
func sumID(day, identity string) string { return day + "." + identity }

// identitiesOf, followed by a day, is the index of the identities that have a sum.
const identitiesOf = "identities."

// AddSpent implements registry.SpendingStore.
func (s Spending) AddSpent(ctx context.Context, charges ...registry.TenantCharge) []registry.Charged {
	done := make([]registry.Charged, len(charges))
	for i, t := range charges {
		if done[i], done[i].Error = s.add(ctx, t); done[i].Error != nil {
			done[i] = registry.Charged{Error: done[i].Error}
		}
	}
	return done
}

func (s Spending) add(ctx context.Context, t registry.TenantCharge) (done registry.Charged, err error) {
	for range documents.MaxTries {
		now, err := s.docs.Read(ctx, sums(t.Tenant).Ref(""))
		if err != nil {
			return done, err
		}
		at := now[0].Now
		done = registry.Charged{Day: registry.UsageDay(at), Left: untilMidnight(at)}
		ids := make([]string, len(t.Charges))
		for i, c := range t.Charges {
			if ids[i], err = s.admit(ctx, t.Tenant, done.Day, c.Identity); err != nil {
				return done, err
			}
		}
		found, err := s.docs.Read(ctx, sums(t.Tenant).Refs(ids...)...)
		if err != nil {
			return done, err
		}
		steps, err := s.steps(t, ids, found, &done)
		if err != nil {
			return done, err
		}
		if written, err := documents.Commit(ctx, s.docs, sums(t.Tenant), steps...); err != nil || written.Refused == 0 {
			return done, err
		}
	}
	return done, documents.ErrContended
}

// untilMidnight returns how long the day (UTC) still takes.
func untilMidnight(now time.Time) time.Duration {
	return now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now)
}

// admit returns the id of the sum of an identity: its own or, without room, that of the others.
func (s Spending) admit(ctx context.Context, tenant, day, identity string) (string, error) {
	if identity == "" || identity == registry.SpenderOther {
		return sumID(day, identity), nil
	}
	index := identitiesOf + day
	done, err := documents.Commit(ctx, s.docs, sums(tenant),
		documents.AtMost(s.most-1, documents.Term{Index: index, Weight: 1, Except: identity}),
		documents.Join(index, identity, spenderLife, 0))
	if done.Refused > 0 {
		identity = registry.SpenderOther
	}
	return sumID(day, identity), err
}

// steps returns the steps that write the sums, which it fills in. The charges of one sum follow each other.
func (s Spending) steps(
	t registry.TenantCharge, ids []string, found []documents.Document, done *registry.Charged,
) (steps []documents.Step, err error) {
	sum, added := make(map[string]registry.Spent), make([]registry.Spent, len(ids))
	for i, d := range found {
		known, read := sum[ids[i]]
		if !read {
			if d.Exists() {
				if known, err = documents.Decode[registry.Spent](d, nil); err != nil {
					return nil, err
				}
			}
			steps = append(steps, documents.Expect(ids[i], d.Revision))
		}
		c := t.Charges[i]
		sum[ids[i]] = known.Plus(c.Spent)
		added[i] = sum[ids[i]]
		done.Full = done.Full || t.Take && c.MaxCalls > 0 && added[i].Calls >= c.MaxCalls
	}
	for i, id := range ids {
		if t.Take && !done.Full {
			sum[id] = sum[id].Plus(registry.Spent{Calls: 1})
		}
		life := s.ttl
		if t.Charges[i].Identity != "" {
			life = spenderLife
		}
		done.Sums = append(done.Sums, sum[id])
		steps = append(steps, documents.PutJSON(id, sum[id], life))
	}
	return steps, nil
}

// ReadSpent implements registry.SpendingStore.
func (s Spending) ReadSpent(ctx context.Context, days ...registry.SpentDay) ([]registry.Spent, error) {
	list := make([]registry.Spent, len(days))
	for i, day := range days {
		found, err := s.docs.Read(ctx, sums(day.Tenant).Ref(sumID(day.Day, "")))
		if err != nil {
			return nil, err
		}
		if found[0].Exists() {
			if list[i], err = documents.Decode[registry.Spent](found[0], nil); err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}

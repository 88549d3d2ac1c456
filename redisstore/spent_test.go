package redisstore

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
)

// A new day of Redis' clock begins with new sums. Those of tenants are kept for their time, those of identities not.
func TestSumsBeginAnewEachDay(t *testing.T) {
	ctx := context.Background()
	s := storeOn(t, Options{Limits: registry.Limits{UsageTTL: 3 * 24 * time.Hour}})
	redis, keys := s.conn.Client(), spentKeys(tenant)
	today := time.Now().Unix() / daySeconds
	for ago := range int64(8) { // as if the gateway had run for a week
		if err := redis.HSet(ctx, keys[0], strconv.FormatInt(today-1-ago, 10), "5 6 7 8").Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := redis.HSet(ctx, keys[1], "", strconv.FormatInt(today-1, 10), "user:ann", "100 0 0 0").Err(); err != nil {
		t.Fatal(err)
	}
	done := s.AddSpent(ctx, registry.TenantCharge{Tenant: tenant, Take: true, Charges: []registry.Charge{
		{MaxCalls: 3}, {Identity: "user:ann", MaxCalls: 3},
	}})[0]
	if done.Error != nil || done.Full || done.Sums[0].Calls != 1 || done.Sums[1].Calls != 1 {
		t.Errorf("%+v", done)
	}
	days := must[map[string]string](t)(redis.HGetAll(ctx, keys[0]).Result())
	if len(days) != 4 { // of three days, and the one that is not over
		t.Errorf("kept: %v", days)
	}
	yesterday := registry.UsageDay(time.Unix((today-1)*daySeconds, 0))
	sums := must[[]registry.Spent](t)(s.ReadSpent(ctx, registry.SpentDay{Tenant: tenant, Day: yesterday}))
	if sums[0] != (registry.Spent{Calls: 5, Bytes: 6, Tokens: 7, Micros: 8}) {
		t.Errorf("yesterday: %+v", sums)
	}
}

// BenchmarkSpent measures what a charge of a tenant and an identity costs Redis, 500 tenants at a time.
func BenchmarkSpent(b *testing.B) {
	s := storeOn(b, Options{URL: redistest.Single(b)})
	charges := make([]registry.TenantCharge, 500)
	for i := range charges {
		charges[i] = registry.TenantCharge{Tenant: "t" + strconv.Itoa(i), Charges: []registry.Charge{
			{Spent: registry.Spent{Calls: 1, Bytes: 1000}}, {Identity: "user:ann", Spent: registry.Spent{Calls: 1}},
		}}
	}
	for b.Loop() {
		for _, done := range s.AddSpent(context.Background(), charges...) {
			if done.Error != nil {
				b.Fatal(done.Error)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(len(charges)), "µs/charge")
}

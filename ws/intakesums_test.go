package ws

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
)

// What the intake knows of tenants is what their connections add up to, whatever comes and goes.
func TestIntakeAddsUp(t *testing.T) {
	in := &intake{limit: math.MaxInt64, timeout: time.Hour}
	var conns []*conn
	for i := range 40 {
		conns = append(conns, &conn{who: &auth.Identity{Tenant: fmt.Sprint(i % 5)}})
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		c := conns[r.IntN(len(conns))]
		if r.IntN(4) == 0 {
			in.remove(c)
		} else {
			in.update(c, int64(r.IntN(3)*r.IntN(100)), r.IntN(2) == 0, r.IntN(2) == 0)
		}
		checkIntake(t, in, conns)
	}
	for _, c := range conns {
		in.remove(c)
	}
	if len(in.tenants) != 0 || in.bytes != 0 {
		t.Errorf("left: %d tenants, %d bytes", len(in.tenants), in.bytes)
	}
}

func checkIntake(t *testing.T, in *intake, conns []*conn) {
	t.Helper()
	var all int64
	bytes, oldest := make(map[string]int64), make(map[string]*conn)
	for _, c := range conns {
		all += c.intake.bytes
		bytes[c.who.Tenant] += c.intake.bytes
		if first := oldest[c.who.Tenant]; c.intake.listed &&
			(first == nil || c.intake.since.Before(first.intake.since)) {
			oldest[c.who.Tenant] = c
		}
	}
	if all != in.bytes {
		t.Fatalf("%d bytes, want %d", in.bytes, all)
	}
	var most, holders int64
	for tenant, n := range bytes {
		part := in.tenants[tenant]
		if part == nil {
			part = new(tenantIntake)
		}
		first := oldest[tenant]
		if part.bytes != n || (first == nil) != (part.first == nil) ||
			first != nil && !part.first.intake.since.Equal(first.intake.since) {
			t.Fatalf("tenant %s: %+v, want %d bytes", tenant, part, n)
		}
		if n > 0 {
			holders++
		}
		if oldest[tenant] != nil {
			most = max(most, n)
		}
	}
	switch heaviest := in.heaviestLocked(); {
	case heaviest == nil && most*holders >= all && in.oldestLocked() != nil:
		t.Fatal("nobody makes room")
	case heaviest != nil && (bytes[heaviest.who.Tenant] != most || most*holders < all):
		t.Fatalf("tenant %s makes room", heaviest.who.Tenant)
	}
}

// Complete messages of one tenant do not make the others give up theirs, but the pod holds twice its limit at most
// while these have anything to give up.
func TestIntakeIsBounded(t *testing.T) {
	in := &intake{limit: 100, timeout: time.Hour}
	of := func(tenant string) *conn {
		return &conn{who: &auth.Identity{Tenant: tenant}, stopped: true} // it has nothing to close
	}
	in.update(of("a"), 100, false, false)
	var most int64
	for i := range 20 {
		in.update(of(fmt.Sprint(i)), 60, true, true)
		most = max(most, in.held())
	}
	if most <= 100 || most > 200 {
		t.Errorf("%d bytes are held, with a limit of 100", most)
	}
}

package memory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

// taker takes one more of a pool, under an id that is new.
type taker func(m *Store, tenant, id string) error

func takeRecord(m *Store, tenant, id string) error {
	_, _, err := m.CreateCall(context.Background(), registry.Record{Tenant: tenant, CallID: id})
	return err
}

func keepRecord(m *Store, tenant, id string) error {
	r := registry.Record{Tenant: tenant, CallID: id, State: registry.StateSucceeded}
	return m.KeepCalls(context.Background(), []registry.Record{r})
}

func takeLog(m *Store, tenant, id string) error {
	e := registry.CallEvent{Tenant: tenant, CallID: id, Type: registry.CallEventProgress}
	return m.AppendCallEvents(context.Background(), []registry.CallEvent{e})
}

func takeTurn(m *Store, tenant, id string) error {
	_, err := m.BeginTurn(context.Background(), registry.Key{Tenant: tenant, Session: id}, time.Second)
	return err
}

func takePlace(m *Store, tenant, id string) error {
	c := registry.PlaceClaim{Key: registry.PlaceKey{Tenant: tenant, Session: id}, Pod: "a", Kind: "browser"}
	_, err := m.ClaimPlace(context.Background(), c)
	return err
}

// takeAll takes until there is no room, and returns how often there was.
func takeAll(t *testing.T, m *Store, take taker, tenant, whose string) (n int) {
	t.Helper()
	for ; n < 1000; n++ {
		err := take(m, tenant, fmt.Sprint(tenant, n))
		if err == nil {
			continue
		}
		if e := registry.AsError(err); e.Code != registry.CodeStoreUnavailable || !strings.HasPrefix(e.Message, whose) {
			t.Errorf("%s has %d: %v", tenant, n, err)
		}
		break
	}
	return n
}

// attack takes all that a tenant can get of a pool of 20, while others work. expire lets all of it expire.
func attack(t *testing.T, m *Store, take taker, held func() int, expire func()) {
	t.Helper()
	if n := takeAll(t, m, take, "greedy", "This tenant "); n != 10 {
		t.Errorf("a tenant has %d of 20", n)
	}
	if n := takeAll(t, m, take, "modest", "This tenant "); n != 5 {
		t.Errorf("another one has %d of the rest", n)
	}
	for i := range 5 {
		if err := take(m, fmt.Sprint("tenant", i), "one"); err != nil {
			t.Errorf("one more tenant: %v", err)
		}
	}
	takeAll(t, m, take, "late", "The store ")
	if n := held(); n != 20 {
		t.Errorf("%d of 20 are held", n)
	}
	expire()
	if _, err := m.Sweep(context.Background()); err != nil || held() != 0 {
		t.Errorf("%d are held after a sweep, %v", held(), err)
	}
	if n := takeAll(t, m, take, "greedy", "This tenant "); n != 10 {
		t.Errorf("a tenant has %d of 20 after a sweep", n)
	}
}

func TestRecordsOfCallsAreShared(t *testing.T) {
	for name, take := range map[string]taker{"CreateCall": takeRecord, "KeepCalls": keepRecord} {
		t.Run(name, func(t *testing.T) {
			m, now := storeWithClock()
			all := &m.calls.records
			all.most = 20
			attack(t, m, take, func() int { return all.count },
				func() { *now = now.Add(2 * registry.DefaultRetention) })
		})
	}
}

func TestLogsOfCallsAreShared(t *testing.T) {
	m, now := storeWithClock()
	all := &m.calls.logs
	all.most = 20
	attack(t, m, takeLog, func() int { return all.count }, func() { *now = now.Add(2 * registry.DefaultRetention) })
}

func TestConversationsAreShared(t *testing.T) {
	m, now := storeWithClock()
	all := &m.conversations.all
	all.most = 20
	attack(t, m, takeTurn, func() int { return all.count }, func() { *now = now.Add(2 * registry.DefaultHistoryTTL) })
	for i := range 3 {
		key := registry.Key{Tenant: "greedy", Session: fmt.Sprint("greedy", i)}
		for range 2 { // the second one finds nothing
			if _, err := m.EraseConversation(context.Background(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	if all.count != 7 || len(all.byTenant) != 1 {
		t.Errorf("%d conversations of %d tenants are left", all.count, len(all.byTenant))
	}
}

func TestPlacesAreShared(t *testing.T) {
	m, now := storeWithClock()
	all := &m.conversations.places
	all.most, all.quota = 20, 0
	attack(t, m, takePlace, func() int { return all.count }, func() { *now = now.Add(2 * registry.DefaultPlaceTTL) })
}

func TestDocumentsAreShared(t *testing.T) {
	m, now := storeWithClock()
	const nameLength = 16
	const weight = documentWeight + nameLength
	put := func(m *Store, tenant, id string) error {
		space := documents.Space{Tenant: tenant, Kind: "things"}
		step := documents.Put(fmt.Sprintf("%-*s", nameLength, id), nil, time.Hour)
		_, err := documents.Commit(context.Background(), m.documents, space, step)
		return err
	}
	all := &m.documents.all
	all.most = 20 * weight
	attack(t, m, put, func() int { return all.count / weight }, func() {
		*now = now.Add(2 * time.Hour)
		if _, err := m.documents.Write(context.Background()); err != nil { // removes what has expired
			t.Fatal(err)
		}
	})
}

// What tenants send together is stored but for that of a tenant that has its share.
func TestAFullTenantDoesNotKeepOthersOut(t *testing.T) {
	ctx := context.Background()
	m, _ := storeWithClock()
	m.calls.records.most, m.calls.logs.most = 20, 20
	takeAll(t, m, keepRecord, "greedy", "This tenant ")
	records := []registry.Record{{Tenant: "greedy", CallID: "x"}, {Tenant: "modest", CallID: "y"}}
	if err := m.KeepCalls(ctx, records); !registry.IsStoreFull(err) || !errors.Is(err, registry.CodeStoreUnavailable) {
		t.Errorf("keep: %v", err)
	}
	if _, err := m.ReadCall(ctx, "modest", "y"); err != nil {
		t.Errorf("the record of another tenant: %v", err)
	}
	var events []registry.CallEvent
	for _, tenant := range []string{"greedy", "modest"} {
		events = append(events, registry.CallEvent{Tenant: tenant, CallID: "z", Type: registry.CallEventProgress})
	}
	if err := m.AppendCallEvents(ctx, events); !registry.IsStoreFull(err) {
		t.Errorf("append: %v", err)
	}
	if got, err := m.CallEvents(ctx, "modest", "z", "", 5); err != nil || len(got) != 1 {
		t.Errorf("the events of another tenant: %v, %v", got, err)
	}
}

// An idempotency key goes with the record of its call: keys live longer, and a tenant could gather any number of them.
func TestKeysGoWithTheirRecords(t *testing.T) {
	now := time.Now()
	m := New(Options{Limits: registry.Limits{Retention: time.Minute}, Now: func() time.Time { return now }})
	for i := range 100 {
		id := fmt.Sprint("call", i)
		r := registry.Record{Tenant: "t", CallID: id, IdempotencyKey: id}
		if _, _, err := m.CreateCall(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		now = now.Add(10 * time.Second)
	}
	if n := len(m.calls.keys); n > 12 {
		t.Errorf("%d keys are kept of 7 records", n)
	}
}

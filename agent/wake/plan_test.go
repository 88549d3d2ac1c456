package wake

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// recorder is a push service that plays answers. The clock of these tests is synctest's.
type recorder struct {
	mu     sync.Mutex
	at     []time.Time
	answer []result // the last one stays
}

func (r *recorder) push(context.Context, registry.Wake, message) result {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = append(r.at, time.Now())
	next := result{outcome: Sent}
	if len(r.answer) > 0 {
		next = r.answer[0]
		if len(r.answer) > 1 {
			r.answer = r.answer[1:]
		}
	}
	return next
}

func (r *recorder) pushes() []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]time.Time(nil), r.at...)
}

const device = "phone"

// ofAnna is the device as register registers it.
var ofAnna = registry.WakeRef{Tenant: "acme", User: "anna", DeviceID: device}

// keyOf is the key of a device whose user chose its id.
func keyOf(user, device string) string {
	s := registry.Session{UserID: user, DeviceID: device}
	return s.DeviceKey()
}

// fleet is some services on one store, whose webhooks a recorder gets.
func fleet(t *testing.T, pods int, rec *recorder, need func() Need) []*Service {
	t.Helper()
	return fleetOn(t, memory.New(memory.Options{}), pods, rec, need)
}

func fleetOn(t *testing.T, store *memory.Store, pods int, rec *recorder, need func() Need) []*Service {
	t.Helper()
	var all []*Service
	for range pods {
		needed := func(context.Context, registry.WakeRecord) (Need, error) { return need(), nil }
		s, err := New(Config{Store: store, Needed: needed, Queued: store.ScanQueued})
		if err != nil {
			t.Fatal(err)
		}
		s.pushers[registry.WakeWebhook] = rec
		all = append(all, s)
	}
	t.Cleanup(func() {
		for _, s := range all {
			s.Close(t.Context())
		}
	})
	return all
}

func register(t *testing.T, s *Service, w registry.Wake) {
	t.Helper()
	w.Kind, w.URL = registry.WakeWebhook, "https://hooks.example.com/phone"
	if _, err := s.Register(t.Context(), "acme", "anna", device, w); err != nil {
		t.Fatal(err)
	}
}

func wanted() Need { return Need{Wanted: true} }

func wakeAll(pods []*Service, times int) {
	for range times {
		for _, s := range pods {
			s.Wake(context.Background(), "acme", keyOf("anna", device))
		}
	}
	synctest.Wait()
}

func wantPushes(t *testing.T, rec *recorder, begin time.Time, want ...time.Duration) {
	t.Helper()
	got := rec.pushes()
	if len(got) != len(want) {
		t.Fatalf("%d pushes, want %d: %v", len(got), len(want), got)
	}
	for i, at := range got {
		if late := at.Sub(begin) - want[i]; late < 0 || late > 2*sweepPause {
			t.Errorf("push %d came after %v, want %v", i, at.Sub(begin), want[i])
		}
	}
}

// Many calls that are queued on several pods cause one push; those that come later, one more after the interval.
func TestOnePushForManyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec, begin := &recorder{}, time.Now()
		pods := fleet(t, 3, rec, wanted)
		register(t, pods[0], registry.Wake{})
		wakeAll(pods, 50)
		wantPushes(t, rec, begin, 0)
		time.Sleep(10 * time.Second)
		wakeAll(pods, 50)
		wantPushes(t, rec, begin, 0)
		time.Sleep(time.Hour)
		synctest.Wait()
		wantPushes(t, rec, begin, 0, time.Minute)
	})
}

// A planned push is not sent if the device came by itself meanwhile.
func TestPlannedPushIsNoLongerNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec, begin, need := &recorder{}, time.Now(), wanted()
		var mu sync.Mutex
		pods := fleet(t, 2, rec, func() Need { mu.Lock(); defer mu.Unlock(); return need })
		register(t, pods[0], registry.Wake{MinIntervalMS: 5000})
		wakeAll(pods, 1)
		time.Sleep(time.Second)
		wakeAll(pods, 1)
		mu.Lock()
		need.Wanted = false
		mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		wantPushes(t, rec, begin, 0)
		if r, err := pods[1].Registered(t.Context(), ofAnna); err != nil || !r.Plan.Next.IsZero() {
			t.Errorf("the plan is %+v, %v", r.Plan, err)
		}
	})
}

func TestQuietHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it begins at midnight UTC, 2000-01-01: 1 o'clock in Vienna
		rec, begin := &recorder{}, time.Now()
		pods := fleet(t, 2, rec, wanted)
		night := &registry.QuietHours{From: "22:00", To: "07:00", Zone: "Europe/Vienna"}
		register(t, pods[0], registry.Wake{Quiet: night})
		wakeAll(pods, 3)
		wantPushes(t, rec, begin)
		time.Sleep(20 * time.Hour)
		synctest.Wait()
		wantPushes(t, rec, begin, 6*time.Hour)
	})
}

// A push service that fails is asked again later and later; Retry-After is obeyed; what it refuses is not repeated.
func TestFailuresOfPushServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := result{outcome: Retry, reason: "status 503"}
		rec, begin := &recorder{answer: []result{
			busy, {outcome: Retry, reason: "status 429", retryAfter: 10 * time.Minute}, {outcome: Sent},
		}}, time.Now()
		pods := fleet(t, 2, rec, wanted)
		register(t, pods[0], registry.Wake{MinIntervalMS: 1000})
		wakeAll(pods, 3)
		time.Sleep(time.Hour)
		synctest.Wait()
		wantPushes(t, rec, begin, 0, 30*time.Second, 10*time.Minute+30*time.Second)

		rec = &recorder{answer: []result{busy}}
		for _, s := range pods {
			s.pushers[registry.WakeWebhook] = rec
		}
		wakeAll(pods, 1)
		time.Sleep(48 * time.Hour)
		synctest.Wait()
		if n := len(rec.pushes()); n != maxFailures {
			t.Errorf("%d pushes to a service that is away, want %d", n, maxFailures)
		}
	})
}

// A pod that dies while it sends a push leaves it to the others.
func TestPodDiesWhilePushing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec, begin := &recorder{}, time.Now()
		pods := fleet(t, 2, rec, wanted)
		register(t, pods[0], registry.Wake{})
		err := pods[0].cfg.Store.PlanWake(t.Context(), ofAnna, func(r registry.WakeRecord) (registry.WakePlan, bool) {
			r.Plan.Last, r.Plan.Next = time.Now(), time.Now().Add(pushLease)
			return r.Plan, true
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		wantPushes(t, rec, begin, pushLease)
	})
}

// A registration that the push service no longer knows is forgotten, unless it was replaced meanwhile.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := &recorder{answer: []result{{outcome: Gone, reason: "status 410"}}}
		pods := fleet(t, 1, rec, wanted)
		register(t, pods[0], registry.Wake{})
		wakeAll(pods, 1)
		if _, err := pods[0].Registered(t.Context(), ofAnna); err != registry.ErrNoWake {
			t.Errorf("after gone: %v", err)
		}
		wakeAll(pods, 1)
		if st := pods[0].Stats(); st.Asked[Unregistered] != 1 || st.Pushes[registry.WakeWebhook][Gone] != 1 {
			t.Errorf("stats %+v", st)
		}
	})
}

func TestRevocationsForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := fleet(t, 1, &recorder{}, wanted)
		for _, change := range []registry.CredentialChange{
			{Tenant: "acme", Kind: registry.ChangeUser, ID: "anna", Revoked: true},
			{Tenant: "acme", Kind: registry.ChangeDevice, ID: device, Revoked: true},
			{Tenant: "acme", Kind: registry.ChangeCredential, ID: "c", Device: device, Revoked: true},
		} {
			register(t, pods[0], registry.Wake{})
			change.At = time.Now()
			pods[0].CredentialsChanged([]registry.CredentialChange{change})
			synctest.Wait()
			if _, err := pods[0].Registered(t.Context(), ofAnna); err != registry.ErrNoWake {
				t.Errorf("after the revocation of a %s: %v", change.Kind, err)
			}
		}
	})
}

func TestNoServiceWakesNothing(t *testing.T) {
	(*Service)(nil).Wake(t.Context(), "acme", device) // does not panic
}

func TestEndsOfQuietHours(t *testing.T) {
	night := &registry.QuietHours{From: "22:00", To: "07:00", Zone: "Europe/Vienna"}
	noon := &registry.QuietHours{From: "12:00", To: "13:30"}
	for _, c := range []struct {
		quiet    *registry.QuietHours
		at, want string
	}{
		{night, "2026-01-10T20:59:59Z", "2026-01-10T20:59:59Z"},
		{night, "2026-01-10T21:00:00Z", "2026-01-11T06:00:00Z"},
		{night, "2026-01-11T05:59:59Z", "2026-01-11T06:00:00Z"},
		{night, "2026-01-11T06:00:00Z", "2026-01-11T06:00:00Z"},
		{night, "2026-03-29T00:30:00Z", "2026-03-29T05:00:00Z"}, // the clocks go forward in this night
		{night, "2026-10-25T00:30:00Z", "2026-10-25T06:00:00Z"}, // and back in this one
		{noon, "2026-01-10T12:29:00Z", "2026-01-10T13:30:00Z"},
		{noon, "2026-01-10T13:30:00Z", "2026-01-10T13:30:00Z"},
		{nil, "2026-01-10T12:29:00Z", "2026-01-10T12:29:00Z"},
	} {
		at, err := time.Parse(time.RFC3339, c.at)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.quiet.End(at).UTC().Format(time.RFC3339); got != c.want {
			t.Errorf("%v at %s: until %s, want %s", c.quiet, c.at, got, c.want)
		}
	}
}

package wake

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// stuck is a push service that does not answer one tenant's pushes before the test ends.
type stuck struct {
	held atomic.Int64
	end  chan struct{}
	sent chan string
}

func (p *stuck) push(ctx context.Context, w registry.Wake, m message) result {
	if w.Token == "greedy" {
		p.held.Add(1)
		select {
		case <-p.end:
		case <-ctx.Done():
		}
		return result{outcome: Sent}
	}
	p.sent <- m.DeviceID
	return result{outcome: Sent}
}

// A tenant whose push service hangs, and who wakes more devices than the pod has places for, keeps half of the pod's
// pushes and of its waiting devices. Another tenant's device is woken at once.
func TestWakesAreShared(t *testing.T) {
	store, p := memory.New(memory.Options{}), &stuck{end: make(chan struct{}), sent: make(chan string, 1)}
	s, err := New(Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	s.pushers[registry.WakeFCM] = p
	t.Cleanup(func() { close(p.end); s.Close(t.Context()) })
	register := func(tenant, user, device, token string) {
		w := registry.Wake{Kind: registry.WakeFCM, Token: token}
		if _, err := s.Register(t.Context(), tenant, user, device, w); err != nil {
			t.Fatal(err)
		}
	}
	phones := 0 // each is woken once
	other := testkit.Alone(t, "pushes being sent", func() error {
		phones++
		phone := fmt.Sprint("phone", phones)
		register("modest", "", phone, "modest")
		s.Wake(t.Context(), "modest", keyOf("", phone))
		if got := testkit.Receive(t, "the modest tenant's push", p.sent); got != phone {
			return fmt.Errorf("pushed to %s", got)
		}
		return nil
	})
	for i := range maxPushes {
		register("greedy", "eve", fmt.Sprint("f", i), "greedy")
		s.Wake(t.Context(), "greedy", keyOf("eve", fmt.Sprint("f", i)))
	}
	testkit.Eventually(t, "a user has a quarter", func() bool { return p.held.Load() == maxPushes/4 })
	for i := range 2 * maxPushes {
		register("greedy", "", fmt.Sprint("d", i), "greedy")
		s.Wake(t.Context(), "greedy", keyOf("", fmt.Sprint("d", i)))
	}
	testkit.Eventually(t, "the greedy tenant has its share", func() bool { return p.held.Load() == maxPushes/2 })
	for i := range maxAsked {
		register("greedy", "", fmt.Sprint("e", i), "greedy")
		s.Wake(t.Context(), "greedy", keyOf("", fmt.Sprint("e", i)))
	}
	if dropped := s.Stats().Asked[Dropped]; dropped != maxAsked/2+3*maxPushes {
		t.Errorf("%d devices were dropped, want those beyond half of the pod's places", dropped)
	}
	other.Crowded()
	if held := p.held.Load(); held != maxPushes/2 {
		t.Errorf("the greedy tenant has %d pushes", held)
	}
}

// Another user registers the device after its calls were counted, and before the push: nothing is pushed.
func TestAPushIsForTheUserItWasCountedFor(t *testing.T) {
	store, p := memory.New(memory.Options{}), &stuck{end: make(chan struct{}), sent: make(chan string, 1)}
	close(p.end)
	var s *Service
	counted := make(chan string, 1)
	s, err := New(Config{Store: store, Needed: func(ctx context.Context, r registry.WakeRecord) (Need, error) {
		if err := s.ForgetOwn(ctx, "acme", "ann", "phone"); err != nil {
			return Need{}, err
		}
		_, err := s.Register(ctx, "acme", "ben", "phone", registry.Wake{Kind: registry.WakeFCM, Token: "of ben"})
		counted <- r.User
		return Need{Wanted: true, Calls: 1, Tools: []string{"of ann"}}, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.pushers[registry.WakeFCM] = p
	t.Cleanup(func() { s.Close(t.Context()) })
	w := registry.Wake{Kind: registry.WakeFCM, Token: "of ann"}
	if _, err := s.Register(t.Context(), "acme", "ann", "phone", w); err != nil {
		t.Fatal(err)
	}
	s.Wake(t.Context(), "acme", keyOf("ann", "phone"))
	if user := testkit.Receive(t, "the count of calls", counted); user != "ann" {
		t.Errorf("counted for %s", user)
	}
	testkit.Eventually(t, "it has ended", func() bool { return s.Stats().Asked[Unregistered] == 1 })
	if len(p.sent) > 0 {
		t.Errorf("%s was pushed what was counted for another user", <-p.sent)
	}
}

// A push service that does not answer holds the places of its kind. Devices that are woken by another kind do not wait.
func TestKindsDoNotWaitForEachOther(t *testing.T) {
	s, p := stuckService(t)
	for i := range 8 {
		tenant := fmt.Sprint("tenant", i) // together they hold nearly all places of the kind
		for j := range maxPushes / 2 {
			phone := fmt.Sprint("d", j)
			registerToken(t, s, tenant, "", phone, "greedy")
			s.Wake(t.Context(), tenant, keyOf("", phone))
		}
	}
	testkit.Eventually(t, "the places are taken", func() bool { return p.held.Load() > maxPushes*3/4 })
	w := registry.Wake{Kind: registry.WakeAPNs, Token: "modest", Topic: "com.example"}
	for i := range maxPushes / 4 {
		phone := fmt.Sprint("phone", i)
		if _, err := s.Register(t.Context(), "modest", "ann", phone, w); err != nil {
			t.Fatal(err)
		}
		s.Wake(t.Context(), "modest", keyOf("ann", phone))
		if got := testkit.Receive(t, "the push of another kind", p.sent); got != phone {
			t.Errorf("pushed to %s", got)
		}
	}
}

// A user whose many planned pushes hang delays neither the planned push of another user nor that of another tenant.
func TestPlannedPushesAreInTurn(t *testing.T) {
	s, p := stuckService(t)
	due := time.Now().Add(time.Second)
	plan := func(tenant, user, phone, token string, at time.Time) {
		registerToken(t, s, tenant, user, phone, token)
		ref := registry.WakeRef{Tenant: tenant, User: user, DeviceID: phone}
		err := s.cfg.Store.PlanWake(t.Context(), ref, func(r registry.WakeRecord) (registry.WakePlan, bool) {
			r.Plan.Next = at
			return r.Plan, true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range registry.MaxWakesOfUser {
		plan("acme", "eve", fmt.Sprint("e", i), "greedy", due)
	}
	plan("acme", "ann", "phone", "modest", due.Add(time.Second))
	plan("other", "ben", "phone", "modest", due.Add(time.Second))
	for range 2 {
		testkit.Receive(t, "the modest users' pushes", p.sent)
	}
	if held := p.held.Load(); held > maxPushes/4 {
		t.Errorf("a user holds %d places", held)
	}
}

// A device that its credential names is woken as its user registered it, however many others registered that id
// earlier, and have devices with it.
func TestABoundDeviceIsWokenForItsUser(t *testing.T) {
	store, p := memory.New(memory.Options{}), &stuck{end: make(chan struct{}), sent: make(chan string, 4)}
	s, err := New(Config{
		Store: store,
		Needed: func(_ context.Context, r registry.WakeRecord) (Need, error) {
			return Need{Wanted: r.User == "ann"}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.pushers[registry.WakeFCM] = p
	t.Cleanup(func() { close(p.end); s.Close(t.Context()) })
	remember := func(user string, bound bool) string {
		of := registry.Session{
			Key: registry.Key{Tenant: "acme", Session: "of-" + user}, UserID: user, DeviceID: "phone", Bound: bound,
		}
		if err := store.RememberDevices(t.Context(), []registry.DeviceMemory{{
			KnownDevice: registry.KnownDevice{Session: of, LastSeen: time.Now()}, Life: time.Hour,
		}}); err != nil {
			t.Fatal(err)
		}
		return of.DeviceKey()
	}
	for i := range 30 {
		eve := fmt.Sprint("eve", i)
		remember(eve, false)
		registerToken(t, s, "acme", eve, "phone", "of eve")
	}
	key := remember("ann", true)
	s.Wake(t.Context(), "acme", key)
	testkit.Eventually(t, "it has not registered", func() bool { return s.Stats().Asked[Unregistered] == 1 })
	registerToken(t, s, "acme", "ann", "phone", "of ann")
	s.Wake(t.Context(), "acme", key)
	testkit.Receive(t, "the push", p.sent)
	testkit.Eventually(t, "the push is noted", func() bool { return s.Stats().Asked[Pushed] == 1 })
	if n := s.Stats().Asked[Unneeded]; n > 0 {
		t.Errorf("%d devices of others were looked at", n)
	}
}

// stuckService is a service whose FCM and APNs are stuck.
func stuckService(t *testing.T) (*Service, *stuck) {
	t.Helper()
	p := &stuck{end: make(chan struct{}), sent: make(chan string, 4)}
	s, err := New(Config{Store: memory.New(memory.Options{})})
	if err != nil {
		t.Fatal(err)
	}
	s.pushers[registry.WakeFCM], s.pushers[registry.WakeAPNs] = p, p
	t.Cleanup(func() { close(p.end); s.Close(t.Context()) })
	return s, p
}

func registerToken(t *testing.T, s *Service, tenant, user, device, token string) {
	t.Helper()
	w := registry.Wake{Kind: registry.WakeFCM, Token: token}
	if _, err := s.Register(t.Context(), tenant, user, device, w); err != nil {
		t.Fatal(err)
	}
}

// A webhook has twice the time of a push service: a service of one's own may wake the device before it answers.
func TestTimeoutsOfPushes(t *testing.T) {
	s := open(t, Config{Settings: Settings{WebhookSecret: webhookSecret}})
	p, ok := s.pushers[registry.WakeWebhook].(hook)
	if !ok || p.client.Timeout != 20*time.Second {
		t.Errorf("a webhook has %v, the documentation says 20 s", p.client.Timeout)
	}
}

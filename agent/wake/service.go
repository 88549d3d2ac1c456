// Package wake sends a push to devices that sleep, so that they connect and answer the calls that wait for them.
//
// A device registers how it is woken (Service.Register). Service.Wake asks for a push. The store decides which pod
// sends it and when (plan.go): one push for all calls that are queued meanwhile, never more often than the device
// allows, not in its quiet hours, later and later if the push service fails. Each pod also searches for planned pushes
// that are due (sweep), and one pod for calls whose wake was not planned, because their pod died or had too many
// devices to wake. The kinds of push services are in push.go, with what an answer means, and in apps.go.
package wake

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/publicnet"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// Config configures a Service. Store is required.
type Config struct {
	Settings

	Store Store

	// Needed reports what a device is to be woken for, just before a push. Nil: every push is needed.
	Needed func(context.Context, registry.WakeRecord) (Need, error)

	// Queued returns a page of the fleet's queued calls, as registry.QueueStore.ScanQueued. Nil: no wake is searched
	// for that a pod could not plan.
	Queued func(ctx context.Context, cursor string, limit int) ([]registry.QueuedCall, string, error)

	// Searches reports whether this pod searches for such wakes now. One pod of the fleet is enough. Nil: it does.
	Searches func(ctx context.Context) (bool, error)

	// AllowPrivate also allows endpoints of devices in private networks, and without TLS.
	AllowPrivate bool

	Roots *x509.CertPool // of Apple's and Google's certificates; nil: the system's
	FCM   string         // base URL of Firebase; empty: Google's
	Log   *slog.Logger   // default: discard
}

// Store is the part of registry.Store that waking needs.
type Store interface {
	registry.WakeStore
	registry.EraseStore
	registry.KnownDevices
}

// Need is what a device is to be woken for.
type Need struct {
	Wanted bool     // it is away, and a call waits for it
	Calls  int      // that wait
	Tools  []string // of these calls, each once
}

// Bounds of a pod, which tenants share.
const (
	maxAsked   = 4096 // devices that are being woken, or wait for a slot
	maxPushes  = 64   // pushes of one kind being sent
	sweepLimit = 200  // planned pushes that one search finds

	sweepPause   = 2 * time.Second
	hookTimeout  = 20 * time.Second // of a webhook and its answer; below pushLease with the store's time
	pushTimeout  = 10 * time.Second // the same, of a push service
	wakeTimeout  = pushLease        // of a wake, including its wait for a slot
	storeTimeout = 3 * time.Second  // to store the outcome of a push
)

// Service wakes devices. It is safe for concurrent use. A nil Service wakes none.
type Service struct {
	cfg     Config
	guard   publicnet.Guard
	pushers map[registry.WakeKind]pusher
	vapid   string
	clients []*http.Client

	asked   *share.Pool
	pushes  map[registry.WakeKind]*share.Pool // a push service that hangs delays no other kind
	ctx     context.Context                   // of the work; ends with Close
	stop    context.CancelFunc
	closing chan struct{} // ends the search for planned pushes
	work    sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	running   map[sleeper]bool // whether it was asked for again meanwhile
	stats     Stats
	revoked   []registry.CredentialChange // to follow, oldest first
	following bool                        // followRevocations runs
}

// New returns a service that searches for planned pushes until Close.
func New(cfg Config) (*Service, error) {
	keys, problems := cfg.read()
	if len(problems) > 0 {
		return nil, fmt.Errorf("wake: %s: %w", problems[0].Variable, problems[0].Err)
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	s := &Service{
		cfg: cfg, guard: publicnet.Guard{AllowPrivate: cfg.AllowPrivate},
		asked:   share.New(share.Bounds{Pod: maxAsked}),
		pushes:  make(map[registry.WakeKind]*share.Pool),
		running: make(map[sleeper]bool), stats: newStats(), closing: make(chan struct{}),
	}
	for _, kind := range registry.WakeKinds() {
		s.pushes[kind] = share.New(share.Bounds{Pod: maxPushes})
	}
	s.setUp(keys)
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.work.Go(s.sweep)
	if cfg.Queued != nil {
		s.work.Go(s.searchUntil)
	}
	return s, nil
}

// setUp makes a pusher for each kind whose keys there are.
func (s *Service) setUp(k keys) {
	s.pushers = make(map[registry.WakeKind]pusher)
	guarded := func(timeout time.Duration) *http.Client { // for URLs that devices name
		return s.client(s.guard.Transport(timeout), timeout)
	}
	if k.webhook != nil {
		s.pushers[registry.WakeWebhook] = hook{guarded(hookTimeout), k.webhook}
	}
	if k.vapid != nil {
		p := web{guarded(pushTimeout), k.vapid, s.cfg.VAPIDSubject}
		s.vapid = p.publicKey()
		s.pushers[registry.WakeWebPush], s.pushers[registry.WakeUnifiedPush] = p, p
	}
	if k.fcm != nil {
		s.pushers[registry.WakeFCM] = newFCM(s.client(s.fixed(false), pushTimeout), k.fcm, cmp.Or(s.cfg.FCM, fcmBase))
	}
	if k.apns != nil {
		s.pushers[registry.WakeAPNs] = newAPNs(s.client(s.fixed(true), pushTimeout), k.apns, s.cfg.Settings)
	}
}

// maxHeader is the maximum size of the header of a push service's answer, in bytes. The default is 10 MiB.
const maxHeader = 64 << 10

// fixed returns a transport for the push service that an operator has configured. It speaks HTTP/2 only if the service
// takes nothing else, as APNs does: over HTTP/2 a server has its client answer pings, also between two pushes.
func (s *Service) fixed(http2 bool) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(!http2)
	t.Protocols.SetHTTP2(http2)
	t.MaxResponseHeaderBytes = maxHeader
	t.TLSClientConfig = &tls.Config{RootCAs: s.cfg.Roots, MinVersion: tls.VersionTLS12}
	return t
}

func (s *Service) client(t *http.Transport, timeout time.Duration) *http.Client {
	t.MaxConnsPerHost = maxPushes
	c := &http.Client{Transport: t, Timeout: timeout, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // push services do not redirect
	}}
	s.clients = append(s.clients, c)
	return c
}

// Close waits for the pushes that are being sent, and ends those that are left when ctx ends. Another pod sends these
// later. It must be called once; later calls of Wake do nothing.
func (s *Service) Close(ctx context.Context) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	close(s.closing)
	defer context.AfterFunc(ctx, s.stop)()
	s.work.Wait()
	s.stop()
	for _, c := range s.clients {
		c.CloseIdleConnections()
	}
}

// Wake wakes a device if it has registered how, soon or when it next allows it. device is its
// registry.Session.DeviceKey. It does not block. If the pod has too many devices to wake, it does nothing.
func (s *Service) Wake(_ context.Context, tenant, device string) {
	if s != nil {
		s.start(sleeperOf(tenant, device), true, time.Time{})
	}
}

// start wakes a device in the background: because a call was queued (asked), because a planned push may be due, or
// because no push was planned for a call that waits since a time. One goroutine at a time does that for a device.
func (s *Service) start(of sleeper, asked bool, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if again, running := s.running[of]; running {
		s.running[of] = again || asked
		return
	}
	grant, err := s.asked.Try(share.Owner{Tenant: of.Tenant, Identity: of.User}, 1)
	if err != nil {
		s.stats.Asked[Dropped]++
		return
	}
	s.running[of] = false
	s.work.Go(func() {
		defer grant.Release()
		for ; ; asked = true {
			did := s.wakeAs(of, asked, since)
			s.mu.Lock()
			if did != "" {
				s.stats.Asked[did]++
			}
			again := s.running[of]
			if s.running[of] = false; !again || s.closed {
				delete(s.running, of)
				s.mu.Unlock()
				return
			}
			s.mu.Unlock()
		}
	})
}

// wakeAs wakes a device as it has registered, and returns what became of that. If only its id was known, it starts that
// for its user, and returns nothing.
func (s *Service) wakeAs(of sleeper, asked bool, since time.Time) Asked {
	ctx, cancel := context.WithTimeout(s.ctx, wakeTimeout)
	defer cancel()
	r, err := s.record(ctx, of)
	switch {
	case err != nil:
		return s.failed(of.WakeRef, err)
	case !of.bound:
		return s.wake(ctx, r, asked, since)
	}
	s.start(sleeper{WakeRef: r.Ref()}, asked, since)
	return ""
}

// wake sends a push to a device, or plans it. If that was not asked for, another pod may have sent the planned push.
func (s *Service) wake(ctx context.Context, record registry.WakeRecord, asked bool, since time.Time) Asked {
	ref := record.Ref()
	slot, err := s.places(record.Wake.Kind).Acquire(ctx, share.Owner{Tenant: ref.Tenant, Identity: ref.User}, 1)
	if err != nil {
		return Dropped
	}
	defer slot.Release()
	need := Need{Wanted: true}
	if s.cfg.Needed != nil {
		if need, err = s.cfg.Needed(ctx, record); err != nil {
			return s.failed(ref, err)
		}
	}
	var push bool
	decide := func(r registry.WakeRecord) (p registry.WakePlan, write bool) {
		if push = false; !need.Wanted {
			write = !r.Plan.Next.IsZero()
			r.Plan.Next = time.Time{}
			return r.Plan, write
		}
		if !asked && r.Plan.Next.IsZero() && !missed(r, since) {
			return r.Plan, false
		}
		p, push, write = begin(r, time.Now())
		r.Plan, record = p, r
		return p, write
	}
	err = s.cfg.Store.PlanWake(ctx, ref, decide)
	switch {
	case err != nil:
		return s.failed(ref, err)
	case !need.Wanted:
		return Unneeded
	case !push:
		return Planned
	}
	res := s.push(ctx, record, need)
	// The outcome is stored even if the time of the wake is over: a failure must count.
	storing, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if err := s.finish(storing, record, res); err != nil {
		return s.failed(ref, err)
	}
	return Pushed
}

// places returns the places for pushes of a kind. A kind that only a newer release knows uses those of webhooks: its
// pushes end immediately, because there is no pusher.
func (s *Service) places(kind registry.WakeKind) *share.Pool {
	if pool := s.pushes[kind]; pool != nil {
		return pool
	}
	return s.pushes[registry.WakeWebhook]
}

func (s *Service) failed(ref registry.WakeRef, err error) Asked {
	if errors.Is(err, registry.ErrNoWake) {
		return Unregistered
	}
	s.cfg.Log.Warn("device not woken", "tenant", ref.Tenant, "device", ref.DeviceID, "error", err)
	return Failed
}

// push sends a push.
func (s *Service) push(ctx context.Context, r registry.WakeRecord, need Need) result {
	res := result{outcome: Refused, reason: "this kind is no longer set up"}
	m := message{Type: messageType, Timestamp: time.Now().UTC(), DeviceID: r.DeviceID}
	if s.cfg.Content {
		m.Calls, m.Tools = need.Calls, need.Tools[:min(len(need.Tools), maxTools)]
	}
	if p := s.pushers[r.Wake.Kind]; p != nil {
		res = p.push(ctx, r.Wake, m)
	}
	s.mu.Lock()
	s.stats.Pushes[r.Wake.Kind][res.outcome]++
	s.mu.Unlock()
	return res
}

// maxTools is how many tools a push names at most. Push services take about 4 KiB.
const maxTools = 8

// finish stores the outcome of a push. A registration that was replaced meanwhile is not forgotten.
func (s *Service) finish(ctx context.Context, r registry.WakeRecord, res result) error {
	log := s.cfg.Log.With("tenant", r.Tenant, "device", r.DeviceID, "kind", r.Wake.Kind)
	switch res.outcome {
	case Sent:
		log.Debug("device woken")
	case Gone:
		log.Info("push service no longer knows the device; its registration is forgotten", "reason", res.reason)
	default:
		log.Warn("push failed", "reason", res.reason, "cause", res.logged(), "failures", r.Plan.Failures+1)
	}
	gone := false
	err := s.cfg.Store.PlanWake(ctx, r.Ref(), func(now registry.WakeRecord) (registry.WakePlan, bool) {
		if gone = res.outcome == Gone && now.Wake.Equal(r.Wake); gone {
			return now.Plan, false
		}
		return after(now, res, time.Now()), true
	})
	if gone {
		_, err = s.cfg.Store.DropWake(ctx, r.Ref())
	}
	if errors.Is(err, registry.ErrNoWake) {
		return nil // forgotten meanwhile
	}
	return err
}

// sweep sends planned pushes that are due, of all pods.
func (s *Service) sweep() {
	ticker := time.NewTicker(sweepPause)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-s.closing:
			return
		}
		ctx, cancel := context.WithTimeout(s.ctx, sweepPause)
		due, err := s.cfg.Store.DueWakes(ctx, sweepLimit)
		cancel()
		if err != nil && s.ctx.Err() == nil {
			s.cfg.Log.Warn("planned pushes not read", "error", err)
		}
		for _, ref := range due {
			s.start(sleeper{WakeRef: ref}, false, time.Time{})
		}
	}
}

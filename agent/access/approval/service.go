// Package approval asks people about calls. A Service stores each question, waits for its answer, takes decisions, and
// starts asynchronous calls that were allowed, on any pod. One poll per pod serves all waiting callers.
//
//   - service.go: the Service, its life, questions and "allow always".
//   - wait.go: waiting for answers.
//   - shown.go: how a question is shown, so that nothing in it can hide.
//   - decide.go: decisions and withdrawals.
//   - forget.go: how "allow always" ends when its giver is revoked, and asynchronous calls.
package approval

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// Starter starts or ends the call of a final deferred approval. *agent.Invoker implements it.
type Starter interface {
	StartDeferred(ctx context.Context, a registry.Approval, request []byte) (done bool, err error)
}

// Pods lists the live pods. registry.PodStore implements it.
type Pods interface {
	Live(ctx context.Context) ([]string, error)
}

// Config configures a Service. Store is required. Its functions must not block, except Verify.
type Config struct {
	Store  registry.ApprovalStore
	Budget Budget // bounds the stored bytes of approvals, also of final ones; nil: no bound
	Pods   Pods   // rejects approval of calls whose pod has died; nil: not checked

	// Credentials and Approvers list who may decide. Callers see the names, and Service checks whether an earlier voter
	// may still decide. Nil: no names, and no check.
	Credentials Credentials
	Approvers   []Approver

	// Verify checks an identity that was authenticated earlier: registry.CodeUnauthenticated means that it was revoked.
	// Nil: no identity is revoked.
	Verify func(ctx context.Context, who *auth.Identity) error

	Note      func(registry.Activity) // adds an entry to the tenant's activity feed; may be nil
	Requested func(registry.Approval) // on the pod that requests an approval; may be nil
	Show      func(registry.Approval) // shows an approval and its verdict on its device; may be nil
	Audit     auth.Auditor            // gets requests, decisions and revocations; default: discard
	Log       *slog.Logger            // default: discard
}

// Budget bounds what identities store. *routing.ByteBudget implements it.
type Budget interface {
	Begin(ctx context.Context, by share.Owner, bytes int) error // fails if the budget is exceeded
	GiveBack(by share.Owner, bytes int)                         // what was spent but not stored
}

// Service asks people about calls. It is safe for concurrent use. Call Close when done.
type Service struct {
	cfg  Config
	ctx  context.Context // of the background work
	stop context.CancelFunc
	work sync.WaitGroup

	polls       chan struct{} // capacity 1: a caller waits
	sweep       chan struct{} // capacity 1: an approval may be due
	revocations chan struct{} // capacity 1: an identity was revoked

	mu          sync.Mutex
	revoked     []registry.CredentialChange // whose grants are not dropped yet
	subscribers map[registry.ApprovalRef][]chan registry.Verdict
	count       int                                // channels in subscribers
	asked       map[registry.ApprovalRef]time.Time // when this pod asked, for those that are undecided

	keyCache *cache.Cache[string, approverKeys] // by tenant
}

var _ agent.Approvals = (*Service)(nil)

// New returns a Service that waits for answers. It starts asynchronous calls only after Serve.
func New(cfg Config) *Service {
	if cfg.Note == nil {
		cfg.Note = func(registry.Activity) {}
	}
	if cfg.Show == nil {
		cfg.Show = func(registry.Approval) {}
	}
	if cfg.Requested == nil {
		cfg.Requested = func(registry.Approval) {}
	}
	cfg.Audit = cmp.Or[auth.Auditor](cfg.Audit, auth.NoAudit{})
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	k := &Service{
		cfg: cfg, polls: make(chan struct{}, 1), sweep: make(chan struct{}, 1), revocations: make(chan struct{}, 1),
		subscribers: make(map[registry.ApprovalRef][]chan registry.Verdict),
		asked:       make(map[registry.ApprovalRef]time.Time),
		keyCache:    cache.New[string, approverKeys](maxApproverKeys, 0),
	}
	k.ctx, k.stop = context.WithCancel(context.Background())
	k.work.Go(k.poll)
	k.work.Go(k.dropRevokedGrants)
	return k
}

// Serve makes the Service start deferred calls with starter, also those that other pods left. Call it once.
func (k *Service) Serve(starter Starter) { k.work.Go(func() { k.sweepDue(starter) }) }

// Close stops the background work and waits for it. Waiting callers get the verdict that the question was withdrawn.
func (k *Service) Close() {
	k.stop()
	k.work.Wait()
}

// note adds an approval to the feed, without arguments, and shows it on its device.
func (k *Service) note(kind string, a registry.Approval) {
	k.cfg.Note(registry.Activity{
		Tenant: a.Tenant, Type: kind, SessionID: a.SessionID, DeviceID: a.DeviceID,
		Approval: &registry.ApprovalNote{
			ID: a.ID, CallID: a.CallID, Tool: a.Tool, Owner: a.Owner, State: a.State, DecidedBy: a.DecidedBy,
			ExpiresAt: a.ExpiresAt,
		},
	})
	k.cfg.Show(a)
}

// audit adds an entry about an approval to the audit log. Zero actor: no person acted, for example on expiry.
func (k *Service) audit(action string, who registry.AuditActor, a registry.Approval, outcome, reason string) {
	k.cfg.Audit.Note(registry.AuditEntry{
		Tenant: a.Tenant, Actor: who, Action: action, Outcome: outcome, Reason: reason, Rule: a.Rule, Target: a.ID,
		Tool: a.Tool, SessionID: a.SessionID, DeviceID: a.DeviceID, CallID: a.CallID, Turn: a.Turn, Args: a.Args,
	})
}

// signal wakes the reader of a channel of capacity 1.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // already signaled
	}
}

// storeTimeout bounds store requests that have no deadline from a caller.
const storeTimeout = 3 * time.Second

// Granted implements agent.Approvals.
func (k *Service) Granted(ctx context.Context, a registry.Approval) (bool, error) {
	bindings := []string{registry.GrantOf(a, registry.ScopeAlwaysArgs).Binding()}
	if !a.ExactArgs {
		bindings = append(bindings, registry.GrantOf(a, registry.ScopeAlwaysTool).Binding())
	}
	g, err := k.cfg.Store.FindGrant(ctx, a.Tenant, bindings...)
	if errors.Is(err, registry.ErrNoGrant) {
		return false, nil
	}
	return err == nil && g.Covers(a), err
}

func (k *Service) grant(
	ctx context.Context, a registry.Approval, by decider, life time.Duration,
) (*registry.Grant, error) {
	limit := min(registry.MaxGrantLife, cmp.Or(a.GrantLimit, registry.MaxGrantLife))
	if life <= 0 || life > limit {
		life = limit
	}
	g := registry.GrantOf(a, a.Scope)
	g.ID, g.GrantedBy = registry.NewApprovalID(), by.by
	if by.atDevice { // by names the device
		g.GivenWith = by.who.Credential
	}
	g, err := k.cfg.Store.PutGrant(ctx, g, life)
	if err != nil {
		return nil, err
	}
	return &g, nil
}

// Grants returns the grants that the identity may see.
func (k *Service) Grants(ctx context.Context, who auth.Identity) ([]registry.Grant, error) {
	all, err := k.cfg.Store.Grants(ctx, who.Tenant)
	seen := []registry.Grant{}
	for _, g := range all {
		if maySee(who, registry.Approval{Tenant: g.Tenant, Tool: g.Tool, Owner: g.Owner, DeviceID: g.DeviceID}) {
			seen = append(seen, g)
		}
	}
	return seen, err
}

// Revoke revokes a grant that the identity may see. Calls that it covered need approval again.
func (k *Service) Revoke(ctx context.Context, who auth.Identity, id string) (registry.Grant, error) {
	all, err := k.Grants(ctx, who)
	if err != nil {
		return registry.Grant{}, err
	}
	i := slices.IndexFunc(all, func(g registry.Grant) bool { return g.ID == id })
	if i < 0 {
		return registry.Grant{}, registry.ErrNoGrant
	}
	if err = k.cfg.Store.RevokeGrant(ctx, all[i]); err != nil {
		return registry.Grant{}, err
	}
	k.auditRevoke(who.Actor(), all[i], "")
	return all[i], nil
}

// auditRevoke adds the end of a grant to the audit log. Zero actor: it ended with a credential, user or device.
func (k *Service) auditRevoke(who registry.AuditActor, g registry.Grant, reason string) {
	k.cfg.Audit.Note(registry.AuditEntry{
		Tenant: g.Tenant, Actor: who, Action: registry.AuditGrantRevoke, Outcome: registry.AuditAllowed, Reason: reason,
		Target: g.ID, Tool: g.Tool, SessionID: g.SessionID, DeviceID: g.DeviceID,
	})
}

// Stats has the undecided approvals that this pod requested.
type Stats struct {
	Waiting int64
	Oldest  time.Duration // since the oldest was requested; 0: none waits
}

// Stats returns the counts. Decisions of other pods about asynchronous calls are seen within sweepPause. At most
// maxWaiting approvals are counted. A restarted pod does not count those it requested before.
func (k *Service) Stats() Stats {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := Stats{Waiting: int64(len(k.asked))}
	for _, at := range k.asked {
		s.Oldest = max(s.Oldest, time.Since(at))
	}
	return s
}

func (k *Service) noteAsked(ref registry.ApprovalRef) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.asked) < maxWaiting {
		k.asked[ref] = time.Now()
	}
}

func (k *Service) noteEnded(refs ...registry.ApprovalRef) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, ref := range refs {
		delete(k.asked, ref)
	}
}

// forgetDecided stops counting approvals that are decided, expired or gone. Those with a caller here end with Await.
func (k *Service) forgetDecided() {
	k.mu.Lock()
	refs := slices.Collect(maps.Keys(k.asked))
	refs = slices.DeleteFunc(refs, func(ref registry.ApprovalRef) bool { return len(k.subscribers[ref]) > 0 })
	k.mu.Unlock()
	for batch := range slices.Chunk(refs, pollBatch) {
		ctx, cancel := context.WithTimeout(k.ctx, storeTimeout)
		verdicts, err := k.cfg.Store.Verdicts(ctx, batch)
		cancel()
		if err != nil {
			return // the next sweep retries
		}
		for i, v := range verdicts {
			if v.State == "" || v.Final() {
				k.noteEnded(batch[i])
			}
		}
	}
}

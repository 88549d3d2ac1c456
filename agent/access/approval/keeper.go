// Package approval asks people about calls. A Keeper stores each question, waits for answers together with everybody
// who waits on its pod, takes decisions, and starts the asynchronous calls that were allowed, on whichever pod.
//
//   - keeper.go: the Keeper, its life, questions and "allow always"; wait.go: waiting for answers.
//   - decide.go: decisions and withdrawals; forget.go: how "allow always" ends with who said it, and asynchronous
//     calls.
//   - shown.go: how a question is shown, so that nothing in it can hide.
package approval

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// Starter carries on with the call of a deferred approval that is final. *agent.Invoker is one.
type Starter interface {
	StartDeferred(ctx context.Context, a registry.Approval, request []byte) (done bool, err error)
}

// Pods knows the pods of the fleet. registry.PodStore is one.
type Pods interface {
	Live(ctx context.Context) ([]string, error)
}

// Config configures a Keeper. Store is required.
type Config struct {
	Store registry.ApprovalStore

	// Budget bounds the bytes that are kept of approvals: each is kept for a while after it is final. Nil: nothing
	// does.
	Budget Budget

	// Pods says whose lease has not lapsed, so that nobody allows in vain a call whose pod has died. Nil: nobody does.
	Pods Pods

	// Credentials and Approvers are who may decide, for callers to know whom to ask, and to see whether who has decided
	// still may. Nil: they are not named.
	Credentials Credentials
	Approvers   []Approver

	// Verify reports whether an identity that was proved a while ago has ended: registry.CodeUnauthenticated says that
	// it was revoked. Nil: none is.
	Verify func(ctx context.Context, who *auth.Identity) error

	// Note adds a line to the tenant's feed. It returns at once. Nil: nobody is notified.
	Note func(registry.Activity)

	// Requested is told of each approval that is asked for, on the pod that asks. It returns at once. Nil: nobody is
	// told.
	Requested func(registry.Approval)

	// Show shows an approval on its device, and that it is final, if the device wants that. It returns at once. Nil: no
	// device is shown any.
	Show func(registry.Approval)

	Audit auth.Auditor // takes what is asked, decided and revoked; default: nobody
	Log   *slog.Logger // default: discard
}

// Budget bounds what identities add. *routing.ByteBudget is one.
type Budget interface {
	// Begin spends bytes, or fails.
	Begin(ctx context.Context, by share.Owner, bytes int) error

	// GiveBack returns bytes that were spent and not added.
	GiveBack(by share.Owner, bytes int)
}

// Keeper asks people. It is safe for concurrent use. Its owner must call Close.
type Keeper struct {
	cfg   Config
	ctx   context.Context // of the background work
	stop  context.CancelFunc
	work  sync.WaitGroup
	polls chan struct{} // capacity 1: somebody waits
	sweep chan struct{} // capacity 1: something may be due now

	forgets chan struct{} // capacity 1: something was revoked

	mu      sync.Mutex
	revoked []registry.CredentialChange // whose grants are still to be dropped
	waiting map[registry.ApprovalRef][]chan registry.Verdict
	count   int // of channels in waiting
	starter Starter

	holdersOf *cache.Cache[string, holders] // by tenant
}

var _ agent.Approvals = (*Keeper)(nil)

// NewKeeper returns a Keeper that waits for answers. It starts asynchronous calls once Serve was called.
func NewKeeper(cfg Config) *Keeper {
	if cfg.Note == nil {
		cfg.Note = func(registry.Activity) {}
	}
	if cfg.Show == nil {
		cfg.Show = func(registry.Approval) {}
	}
	if cfg.Requested == nil {
		cfg.Requested = func(registry.Approval) {}
	}
	if cfg.Audit == nil {
		cfg.Audit = auth.NoAudit{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	k := &Keeper{
		cfg: cfg, polls: make(chan struct{}, 1), sweep: make(chan struct{}, 1), forgets: make(chan struct{}, 1),
		waiting:   make(map[registry.ApprovalRef][]chan registry.Verdict),
		holdersOf: cache.New[string, holders](maxHolders, 0),
	}
	k.ctx, k.stop = context.WithCancel(context.Background())
	k.work.Go(k.poll)
	k.work.Go(k.forget)
	return k
}

// Serve starts deferred calls with starter from now on, also those that other pods left. It is called once.
func (k *Keeper) Serve(starter Starter) {
	k.mu.Lock()
	k.starter = starter
	k.mu.Unlock()
	k.work.Go(k.sweepDue)
}

// Close ends the background work and waits for it. Whoever still waits is told that the question was withdrawn.
func (k *Keeper) Close() {
	k.stop()
	k.work.Wait()
}

// note tells the feed about an approval: who is asked or has decided, never what about.
func (k *Keeper) note(kind string, a registry.Approval) {
	k.cfg.Note(registry.Activity{
		Tenant: a.Tenant, Type: kind, SessionID: a.SessionID, DeviceID: a.DeviceID,
		Approval: &registry.ApprovalNote{
			ID: a.ID, CallID: a.CallID, Tool: a.Tool, Owner: a.Owner, State: a.State, DecidedBy: a.DecidedBy,
			ExpiresAt: a.ExpiresAt,
		},
	})
	k.cfg.Show(a)
}

// audit notes in the audit log what somebody did about an approval. The zero actor is nobody: time passed.
func (k *Keeper) audit(action string, who registry.AuditActor, a registry.Approval, outcome, reason string) {
	k.cfg.Audit.Note(registry.AuditEntry{
		Tenant: a.Tenant, Actor: who, Action: action, Outcome: outcome, Reason: reason, Rule: a.Rule, Target: a.ID,
		Tool: a.Tool, SessionID: a.SessionID, DeviceID: a.DeviceID, CallID: a.CallID, Turn: a.Turn, Args: a.Args,
	})
}

// signal wakes whoever reads a channel of capacity 1.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is awake already
	}
}

// storeTimeout bounds what is not bounded by its caller.
const storeTimeout = 3 * time.Second

// Granted implements agent.Approvals.
func (k *Keeper) Granted(ctx context.Context, a registry.Approval) (bool, error) {
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

// grant makes the grant of an approval that by has allowed always.
func (k *Keeper) grant(
	ctx context.Context, a registry.Approval, by string, life time.Duration,
) (*registry.Grant, error) {
	limit := registry.MaxGrantLife
	if a.GrantLimit > 0 {
		limit = min(limit, a.GrantLimit)
	}
	if life <= 0 || life > limit {
		life = limit
	}
	g := registry.GrantOf(a, a.Scope)
	g.ID, g.GrantedBy = registry.NewApprovalID(), by
	g, err := k.cfg.Store.PutGrant(ctx, g, life)
	if err != nil {
		return nil, err
	}
	return &g, nil
}

// Grants returns the grants that who may see.
func (k *Keeper) Grants(ctx context.Context, who auth.Identity) ([]registry.Grant, error) {
	all, err := k.cfg.Store.Grants(ctx, who.Tenant)
	seen := []registry.Grant{}
	for _, g := range all {
		if maySeeGrant(who, g) {
			seen = append(seen, g)
		}
	}
	return seen, err
}

// Revoke revokes a grant that who may see. Calls that it covered are asked about again from then on.
func (k *Keeper) Revoke(ctx context.Context, who auth.Identity, id string) (registry.Grant, error) {
	all, err := k.Grants(ctx, who)
	if err != nil {
		return registry.Grant{}, err
	}
	for _, g := range all {
		if g.ID != id {
			continue
		}
		if g, err = k.cfg.Store.RevokeGrant(ctx, who.Tenant, id); err == nil {
			k.auditRevoke(who.Actor(), g, "")
		}
		return g, err
	}
	return registry.Grant{}, registry.ErrNoGrant
}

// auditRevoke notes in the audit log that a grant was revoked. The zero actor is nobody: it ended with something else.
func (k *Keeper) auditRevoke(who registry.AuditActor, g registry.Grant, reason string) {
	k.cfg.Audit.Note(registry.AuditEntry{
		Tenant: g.Tenant, Actor: who, Action: registry.AuditGrantRevoke, Outcome: registry.AuditAllowed, Reason: reason,
		Target: g.ID, Tool: g.Tool, SessionID: g.SessionID, DeviceID: g.DeviceID,
	})
}

func maySeeGrant(who auth.Identity, g registry.Grant) bool {
	return maySee(who, registry.Approval{Tenant: g.Tenant, Tool: g.Tool, Owner: g.Owner, DeviceID: g.DeviceID})
}

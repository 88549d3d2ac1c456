package routing

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/farhand/farhand/registry"
)

// Turns ends turns of conversations, and what else has a key, on whatever pod they run. It is safe for concurrent use.
type Turns struct {
	pod  string
	pods registry.PodStore
	bus  registry.Bus
	log  *slog.Logger

	mu     sync.Mutex
	aborts []func(registry.Key) bool // replaced when one is added
}

func newTurns(cfg PodConfig) *Turns {
	return &Turns{pod: cfg.ID, pods: cfg.Store, bus: cfg.Bus, log: cfg.Log}
}

// Serve adds a function that aborts a turn on this pod, which is asked before those that were added earlier. abort
// reports whether there was a turn, and must not block.
func (t *Turns) Serve(abort func(registry.Key) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.aborts = slices.Insert(slices.Clone(t.aborts), 0, abort)
}

// Abort aborts the turn of a conversation. If the turn does not run here, Abort tells all pods, because it is not known
// which one runs it. Abort does not wait for the end of the turn, and a message can be lost.
func (t *Turns) Abort(ctx context.Context, key registry.Key) error {
	if t.abortHere(key) {
		return nil
	}
	pods, err := t.pods.Live(ctx)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		if pod == t.pod {
			continue
		}
		err := t.bus.Send(ctx, pod, registry.Envelope{
			V: registry.EnvelopeVersion, Kind: registry.EnvelopeAbort, Tenant: key.Tenant, Session: key.Session,
		})
		if err != nil { // the pod may be dead, and its turns with it
			t.log.Debug("abort not delivered", "session", key.Session, "pod", pod, "error", err)
		}
	}
	return nil
}

func (t *Turns) abortHere(key registry.Key) bool {
	t.mu.Lock()
	aborts := t.aborts
	t.mu.Unlock()
	return slices.ContainsFunc(aborts, func(abort func(registry.Key) bool) bool { return abort(key) })
}

func (t *Turns) handleAbort(e registry.Envelope) { t.abortHere(e.Key()) }

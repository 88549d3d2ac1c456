package routing

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/farhand/farhand/registry"
)

// Turns ends turns of conversations on whatever pod they run. It is safe for concurrent use.
type Turns struct {
	pod   string
	pods  registry.PodStore
	bus   registry.Bus
	log   *slog.Logger
	abort atomic.Pointer[func(registry.Key) bool]
}

func newTurns(cfg PodConfig) *Turns {
	return &Turns{pod: cfg.ID, pods: cfg.Store, bus: cfg.Bus, log: cfg.Log}
}

// Serve says how a turn that runs on this pod is aborted: abort reports whether there was one, and must not block.
func (t *Turns) Serve(abort func(registry.Key) bool) { t.abort.Store(&abort) }

// Abort has the turn of a conversation aborted: here, or on the pod that runs it, which is not known, so all are told.
// It does not wait for the end of the turn, and a message can be lost.
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
		err := t.bus.Send(ctx, pod, registry.Envelope{V: registry.EnvelopeVersion, Kind: registry.EnvelopeAbort, Tenant: key.Tenant, Session: key.Session})
		if err != nil { // it may be dead, and its turns with it
			t.log.Debug("abort not delivered", "session", key.Session, "pod", pod, "error", err)
		}
	}
	return nil
}

func (t *Turns) abortHere(key registry.Key) bool {
	abort := t.abort.Load()
	return abort != nil && (*abort)(key)
}

func (t *Turns) handleAbort(e registry.Envelope) { t.abortHere(e.Key()) }

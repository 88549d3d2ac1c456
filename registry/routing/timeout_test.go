package routing

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// stuckClaims is a store that hangs when a call is claimed.
type stuckClaims struct{ *memory.Store }

func (s stuckClaims) MoveCall(
	ctx context.Context, tenant, callID string, e registry.Event, c registry.Change,
) (registry.Moved, error) {
	if e != registry.EventDeliver {
		return s.Store.MoveCall(ctx, tenant, callID, e, c)
	}
	<-ctx.Done()
	return registry.Moved{}, registry.StoreUnavailable("move", ctx.Err())
}

// stuckBus is a bus that hands over and does not send.
type stuckBus struct{ registry.Bus }

func (stuckBus) SendAsync(
	context.Context, string, registry.Envelope, registry.SendCallback,
) (registry.PendingSend, error) {
	return waiting{}, nil
}

// waiting is an envelope that has not left.
type waiting struct{}

func (waiting) Cancel() bool { return true }

// A caller gets an error in its own time when the store does not answer, although nothing but the call itself bounds
// its context. The error names what ended first: the call's time or the store's.
func TestCallsKeepToTheirTimeWhateverHangs(t *testing.T) {
	for name, tt := range map[string]struct {
		owner   string
		durable bool
		timeout time.Duration
		within  time.Duration
		code    registry.Code
	}{
		"claim of a short call": {"a", true, time.Second, time.Second, registry.CodeTimeout},
		"claim of a long call":  {"a", true, time.Hour, taskTimeout, registry.CodeStoreUnavailable},
		"sending a short call": {"b", false, DefaultSendTimeout / 2, DefaultSendTimeout / 2,
			registry.CodeTimeout},
		"sending a long call": {"b", false, time.Hour, DefaultSendTimeout, registry.CodeStoreUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := stuckClaims{memory.New(memory.Options{})}
				pods := map[string]*Pod{"b": startPod(t, store, "b")}
				pods["a"] = startPod(t, store, "a", func(c *PodConfig) {
					if tt.owner != "a" {
						c.Bus = stuckBus{c.Bus}
					}
				})
				l := connect(t, pods[tt.owner], deafConn{}, nil)
				start := time.Now()
				got := <-begin(t, pods["a"], l.Session(), "c1", tt.timeout,
					func(c *registry.Call) { c.Durable = tt.durable })
				if took := time.Since(start); !errors.Is(got.err, tt.code) ||
					registry.AsError(got.err).Dispatched != registry.DispatchedNo || took > tt.within {
					t.Errorf("%+v after %v", got, took)
				}
			})
		})
	}
}

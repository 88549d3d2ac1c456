package registry

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// stuckClaims is a store that hangs when a call is claimed.
type stuckClaims struct{ *Memory }

func (s stuckClaims) MoveCall(ctx context.Context, tenant, callID string, e Event, c Change) (Moved, error) {
	if e != EventDeliver {
		return s.Memory.MoveCall(ctx, tenant, callID, e, c)
	}
	<-ctx.Done()
	return Moved{}, StoreUnavailable("move", ctx.Err())
}

// stuckBus is a bus that hands over and does not send.
type stuckBus struct{ Bus }

func (stuckBus) Post(context.Context, string, Envelope, Sender) (Posted, error) {
	return waiting{}, nil
}

// waiting is an envelope that has not left.
type waiting struct{}

func (waiting) Withdraw() bool { return true }

// A caller hears in its own time that the store does not answer, although nothing but the call itself bounds its context.
func TestCallsKeepToTheirTimeWhateverHangs(t *testing.T) {
	for name, tt := range map[string]struct {
		owner   string
		durable bool
		timeout time.Duration
		within  time.Duration
	}{
		"claim of a short call": {"a", true, time.Second, time.Second},
		"claim of a long call":  {"a", true, time.Hour, taskTimeout},
		"sending a short call":  {"b", false, sendPatience / 2, sendPatience / 2},
		"sending a long call":   {"b", false, time.Hour, sendPatience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := stuckClaims{NewMemory(MemoryOptions{})}
				pods := map[string]*Pod{"b": startPod(t, store, "b")}
				pods["a"] = startPod(t, store, "a", func(c *PodConfig) {
					if tt.owner != "a" {
						c.Bus = stuckBus{c.Bus}
					}
				})
				l := connect(t, pods[tt.owner], deafConn{}, nil)
				start := time.Now()
				got := <-begin(t, pods["a"], l.Session(), "c1", tt.timeout, func(c *Call) { c.Durable = tt.durable })
				if took := time.Since(start); !errors.Is(got.err, CodeStoreUnavailable) || AsError(got.err).Dispatched != DispatchedNo || took > tt.within {
					t.Errorf("%+v after %v", got, took)
				}
			})
		})
	}
}

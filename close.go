package farhand

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/farhand/farhand/registry"
)

// releaseReserve is the fraction of the drain timeout kept for the steps after the devices have left: releasing
// sessions, delivering queued messages, leaving the fleet.
const releaseReserve = 0.2

// Close stops the gateway within ctx, or within Config.DrainTimeout if ctx has no deadline. Devices receive a pod to
// reconnect to, and callers the reason why their request ended. The order is:
//
//  1. Readiness turns red, and new devices are rejected.
//  2. Devices are sent away, each after its calls in flight and its turn have ended.
//  3. No more connections are accepted. Requests in flight finish; those that do not are ended and return a reason.
//  4. Sessions are released, the bus delivers queued messages, and the lease is given up. What runs for the gateway's
//     own tools is ended.
//  5. The connections to Redis are closed. Metrics are served until then.
//
// A program that serves through Handler must shut its own server down after Close, because Close ends what is in flight
// there. The errors name what had to be ended early. Close is safe on a gateway that did not start completely. It must
// be called once.
func (g *Gateway) Close(ctx context.Context) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, g.cfg.DrainTimeout)
		defer cancel()
	}
	g.beginDrain()
	var errs []error
	gentle, cancel := context.WithDeadline(ctx, reserved(ctx))
	defer cancel()
	defer time.AfterFunc(time.Until(reserved(ctx))/2, g.endTurns).Stop()
	if g.devices != nil {
		errs = append(errs, g.devices.Close(gentle))
	}
	errs = append(errs, g.closeListener(gentle))
	g.awaitClients(gentle)
	g.endTurns()
	last := time.AfterFunc(time.Until(reserved(gentle)), func() { g.endRequests(registry.ErrDraining) })
	errs = append(errs, g.closeServer(gentle))
	last.Stop()
	g.endRequests(registry.ErrDraining)
	if g.chat != nil { // its callers are gone, so running turns end soon
		errs = append(errs, g.chat.Close(gentle))
	}
	errs = append(errs, g.closeServer(ctx)) // requests that had to be ended still return a reason
	if g.approvals != nil {                 // its callers are gone
		g.approvals.Close()
	}
	if g.pod != nil {
		g.pod.Drain(gentle)
		errs = append(errs, g.pod.Close(ctx))
	}
	errs = append(errs, g.upstreams.close(ctx), g.own.close(ctx), g.closeBlobs())
	for _, h := range g.webhooks {
		h.Close()
	}
	if g.audit != nil {
		errs = append(errs, g.usage.Close(ctx), g.audit.Close(ctx))
	}
	g.closeIdentity(ctx)
	if g.bus != nil {
		errs = append(errs, g.bus.Close(ctx))
	}
	if g.redis != nil {
		errs = append(errs, g.redis.Close())
	}
	if g.policyFile != nil {
		g.policyFile.Close()
	}
	errs = append(errs, g.monitor.close())
	return errors.Join(errs...)
}

// closeServer waits for the requests in flight, those of the gateway's own server and those through Handler.
func (g *Gateway) closeServer(ctx context.Context) error {
	errs := []error{ignoreClosed(g.server.Shutdown(ctx))}
	select {
	case <-g.requests.none():
	case <-ctx.Done():
		errs = append(errs, ctx.Err())
	}
	return errors.Join(errs...)
}

// ignoreClosed returns nil if the error says that something was closed before.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// clientsTimeout is how long callers with an open connection have to leave it: the answer to their next request tells
// them to reconnect, or they close an unused connection.
const clientsTimeout = 500 * time.Millisecond

// awaitClients waits until callers have left their kept-alive connections, and until new connections have sent their
// request. Closing a connection while a request is being sent leaves the caller without an answer, and http.Server
// drops requests that it reads after Shutdown began. A request answered just as the drain began did not yet tell its
// caller to reconnect, so the timeout of its connection starts then.
func (g *Gateway) awaitClients(ctx context.Context) {
	for last := time.Now(); ; {
		wait := time.NewTimer(time.Until(last.Add(clientsTimeout)))
		select {
		case <-g.clients.none():
		case <-wait.C:
		case <-ctx.Done():
		}
		wait.Stop()
		idle := time.Unix(0, g.lastIdle.Load())
		if !idle.After(last) || ctx.Err() != nil {
			return
		}
		last = idle
	}
}

// emptyTimeout is how long connections in the listener's queue may take to be accepted. emptyFor is how long the queue
// must be empty before the listener closes: connections that were being established arrive within that time.
const (
	emptyTimeout = 250 * time.Millisecond
	emptyFor     = 20 * time.Millisecond
)

// closeListener stops new connections, waits until the server has accepted all established ones, and closes the
// listener. Closing a listener resets the connections in its queue, and loses the requests sent on them. Clients that
// connect meanwhile retry, and are refused after the listener is closed.
func (g *Gateway) closeListener(ctx context.Context) error {
	if !g.serving.Load() {
		if brought := g.parts.listener; brought != nil {
			return ignoreClosed(brought.Close())
		}
		return nil
	}
	g.emptyListener(ctx)
	err := ignoreClosed(g.listener.Close())
	select {
	case <-g.served: // Shutdown waits for the last accepted connection, like all others
	case <-ctx.Done():
	}
	return err
}

func (g *Gateway) emptyListener(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, emptyTimeout)
	defer cancel()
	waiting := quiet(g.listener)
	if waiting == nil {
		return
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for empty := time.Now(); time.Since(empty) < emptyFor; {
		if waiting() > 0 {
			empty = time.Now()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// reserved returns the deadline of the graceful part of Close.
func reserved(ctx context.Context) time.Time {
	deadline, _ := ctx.Deadline() // Close sets one
	return deadline.Add(-time.Duration(float64(time.Until(deadline)) * releaseReserve))
}

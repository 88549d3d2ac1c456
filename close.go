package farhand

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/farhand/farhand/registry"
)

// releaseReserve is the part of the drain limit that is kept for what comes after the devices: releasing sessions,
// delivering what is queued, leaving the fleet.
const releaseReserve = 0.2

// Close stops the gateway, all of it within ctx; without a deadline, within Config.DrainTimeout. Devices learn where to
// go and callers why their request ended, in this order:
//
//  1. Readiness turns red, and new devices are refused.
//  2. Devices are sent away, each once its calls in flight and its turn have ended.
//  3. No more connections are accepted. Requests in flight end; those that do not are ended, and tell their callers so.
//  4. Sessions are released, the bus delivers what is queued, and the lease is given up. What ran for the gateway's own
//     tools is ended.
//  5. The connections to Redis are closed. Metrics are served until then.
//
// A server of the program's own is to be shut down after Close, which ends what it serves through Handler. The errors
// say what had to be ended early. Close is safe on a gateway that did not start completely, and is called once.
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
	if g.chat != nil { // its callers are gone, so what still runs ends soon
		errs = append(errs, g.chat.Close(gentle))
	}
	errs = append(errs, g.closeServer(ctx)) // requests that had to be ended still tell their callers why
	if g.approvals != nil {                 // whoever waited for one is gone
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

// closeServer waits for the requests in flight, of the gateway's own server and through Handler.
func (g *Gateway) closeServer(ctx context.Context) error {
	errs := []error{ignoreClosed(g.server.Shutdown(ctx))}
	select {
	case <-g.requests.none():
	case <-ctx.Done():
		errs = append(errs, ctx.Err())
	}
	return errors.Join(errs...)
}

// ignoreClosed returns nil for what was closed before.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// clientsTimeout is how long callers have to learn, from the answer to their next request, that they should connect
// anew, or to close a connection that they do not use.
const clientsTimeout = 500 * time.Millisecond

// awaitClients gives callers that keep their connection open time to leave it, and those that connected last time to
// send their request. A connection that is closed under a request that is just being sent leaves its caller without an
// answer, and http.Server drops a request that it reads after Shutdown began. A request that was answered as the
// stopping began was answered without a word of it; the time of its connection runs from then on.
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

// emptyTimeout is how long the connections that wait at the listener may take to be accepted, and emptyFor for how long
// none may be there until it closes: a connection that is being made when no more are let in comes within that time.
const (
	emptyTimeout = 250 * time.Millisecond
	emptyFor     = 20 * time.Millisecond
)

// closeListener lets no more connections in, waits until the server has all that were made, and closes the listener.
// Connections that wait when a listener closes are reset, and with them the requests that were sent on them. Who
// connects meanwhile tries again, and is refused once the listener is closed.
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
	case <-g.served: // the last connection that was accepted is among those that Shutdown waits for
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

// reserved returns when the gentle part of stopping must be over.
func reserved(ctx context.Context) time.Time {
	deadline, _ := ctx.Deadline() // Close sees to it that there is one
	return deadline.Add(-time.Duration(float64(time.Until(deadline)) * releaseReserve))
}

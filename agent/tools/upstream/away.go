package upstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/farhand/farhand/registry"
)

const (
	restart   = 30 * time.Second // a server that is away for less may be restarting: calls wait for it
	awayRetry = 2 * time.Second  // after which a call of a server that is away is worth another attempt
)

// connected returns once the server has a connection, other than one that a call could not use. It waits for that until
// ctx ends, or the server has been away for longer than a restart takes. Either way the next attempt to connect is made
// soon, so that a repeated call may find the server.
func (s *server) connected(ctx context.Context, useless *connection) error {
	for {
		now := s.state.Load()
		left := restart
		if now.conn == nil {
			left -= time.Since(now.away)
		} else if now.conn != useless {
			return nil
		}
		select {
		case s.wanted <- struct{}{}:
		default: // another call has said so
		}
		timer := time.NewTimer(left)
		select {
		case <-now.replaced:
			timer.Stop()
			continue
		case <-timer.C:
		case <-ctx.Done():
		case <-s.servers.ctx.Done():
		}
		timer.Stop()
		if errors.Is(ctx.Err(), context.Canceled) {
			return cancelled()
		}
		return s.notConnected()
	}
}

// cancelled is the error of a call that was cancelled before the server had it.
func cancelled() error {
	return registry.Errorf(registry.CodeCancelled, "The call was cancelled.").With(registry.DispatchedNo)
}

// notConnected is the error of a call that the server was not there for.
func (s *server) notConnected() error {
	e := registry.Errorf(registry.CodeNotConnected, "%s", s.unavailable()).With(registry.DispatchedNo)
	e.RetryAfter = awayRetry
	return e
}

// unavailable says that the server is not there, to callers and models.
func (s *server) unavailable() string {
	return fmt.Sprintf("The MCP server %q does not answer now; it is tried again and again. "+
		"On the gateway's machine, farhand doctor says why.", s.Name)
}

// Returning implements agent.ReturningTool.
func (t *tool) Returning() bool {
	now := t.server.state.Load()
	return now.conn == nil && time.Since(now.away) < restart
}

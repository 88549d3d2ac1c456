package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/internal/secret"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
)

const (
	stableAfter = time.Minute // a connection that lasts this long resets the backoff
	maxReason   = 2 << 10     // bytes of the reason why a server is not connected
)

var errClosed = errors.New("the gateway is stopping")

// server is one MCP server, as seen by this pod.
type server struct {
	Server
	servers *Servers
	log     *slog.Logger
	calls   *share.Pool // limits concurrent calls
	state   atomic.Pointer[state]
	tries   atomic.Int64
	counts  callCounts
	wanted  chan struct{} // capacity 1: a call waits for a connection
	paces   *paces
	relist  relistDelay

	logging sync.Mutex
	logged  time.Time // when a call without an answer was logged
	missed  int       // such calls that were not, since then
}

// state is a server's state at one moment. It is immutable.
type state struct {
	conn   *connection      // nil: none
	byName map[string]*tool // kept without a connection: the tools are listed with the reason
	notes  []string
	why    string

	away     time.Time     // when the connection was lost, if there is none
	replaced chan struct{} // closed when another state replaces this one
}

func newServer(s Server, all *Servers) *server {
	s = s.withDefaults()
	most := int64(s.MaxCalls)
	calls := share.New(share.Bounds{Pod: most, Identity: max(most/2, 1)})
	one := &server{
		Server: s, servers: all, log: all.cfg.Log, calls: calls, paces: newPaces(), wanted: make(chan struct{}, 1),
	}
	one.state.Store(&state{why: "no answer yet", away: time.Now(), replaced: make(chan struct{})})
	return one
}

// enter replaces the state and returns the previous one.
func (s *server) enter(next *state) (before *state) {
	next.replaced = make(chan struct{})
	before = s.state.Swap(next)
	close(before.replaced)
	return before
}

// run keeps a connection to the server until ctx ends.
func (s *server) run(ctx context.Context) {
	wait := s.servers.cfg.Backoff
	for old := false; ; {
		began := time.Now()
		s.tries.Add(1)
		connected, err := s.serve(ctx, old)
		if ctx.Err() != nil {
			return
		}
		s.down(err)
		if !connected && !unreachable(err) {
			old = !old
		}
		if time.Since(began) >= stableAfter {
			wait = s.servers.cfg.Backoff
		}
		if !s.pause(ctx, wait, !isHostile(err)) {
			return
		}
		wait = min(2*wait, maxBackoff)
	}
}

// unreachable reports whether the gateway could not even dial the server.
func unreachable(err error) bool {
	dial, ok := errors.AsType[*net.OpError](err)
	return ok && dial.Op == "dial"
}

// isHostile reports whether the connection ended because the server exceeded a limit, or did not read.
func isHostile(err error) bool {
	return slices.ContainsFunc([]error{errFlood, errTooMany, errTooLong, errNoMessage, errNotReading},
		func(hostile error) bool { return errors.Is(err, hostile) })
}

// pause waits for the next attempt to connect, with jitter so that pods that start together do not connect together.
// With hurry, a waiting call shortens the wait, but not below that of the first reconnect. It returns false when ctx
// ends.
func (s *server) pause(ctx context.Context, wait time.Duration, hurry bool) bool {
	least := s.servers.cfg.Backoff
	late, soon := wait/2+rand.N(wait), least/2+rand.N(least)
	if !hurry || late <= soon {
		return pause.For(ctx, late) == nil
	}
	if pause.For(ctx, soon) != nil {
		return false
	}
	rest, cancel := context.WithTimeout(ctx, late-soon)
	defer cancel()
	select {
	case <-rest.Done():
	case <-s.wanted:
	}
	return ctx.Err() == nil
}

// serve connects, and lists the tools whenever they change, until the connection ends. The error is the reason for the
// end.
func (s *server) serve(ctx context.Context, old bool) (connected bool, err error) {
	conn, err := s.servers.cfg.connect(ctx, &s.Server, s.paces, old)
	if err != nil {
		return false, err
	}
	defer func() {
		if conn.ctx.Err() != nil {
			conn.close()
			return
		}
		s.servers.done.Go(conn.finish)
	}()
	for {
		l, err := conn.list(&s.servers.cfg)
		if err != nil {
			return connected, err
		}
		s.up(conn, l)
		connected = true
		s.relist.last = time.Now()
		refresh := time.NewTimer(s.servers.cfg.Refresh)
		select {
		case <-conn.inUse.Done():
		case <-refresh.C:
			s.touchWorkspace(ctx)
		case <-conn.changed:
			conn.waitForMoreChanges(s.relist.next())
		}
		refresh.Stop()
		if conn.inUse.Err() != nil {
			return connected, context.Cause(conn.inUse)
		}
	}
}

// waitForMoreChanges waits, and drops change notifications that arrive meanwhile: the next list includes those changes.
func (c *connection) waitForMoreChanges(wait time.Duration) {
	_ = pause.For(c.inUse, wait)
	select {
	case <-c.changed:
	default:
	}
}

func (s *server) touchWorkspace(ctx context.Context) {
	if all := s.servers.cfg.Workspaces; s.Sandbox && all != nil {
		_, _ = all.Find(sessionOf(s.Name), registry.Place{}).Open(ctx) // retried at the next refresh
	}
}

func (s *server) up(conn *connection, l *listing) {
	next := &state{conn: conn, byName: make(map[string]*tool, len(l.tools)), notes: l.notes}
	for _, a := range l.tools {
		next.byName[a.spec.Name] = &tool{server: s, admitted: a}
	}
	before := s.enter(next)
	if before.conn == conn && next.same(before) {
		return
	}
	s.log.Info("tools of an MCP server listed", "server", s.Name, "tools", len(next.byName), "refused", len(next.notes))
	s.servers.publish()
}

func (n *state) same(before *state) bool {
	return maps.EqualFunc(n.byName, before.byName, func(a, b *tool) bool {
		return a.name == b.name && a.spec.Hash() == b.spec.Hash()
	})
}

// down records that there is no connection, and why.
func (s *server) down(err error) {
	before := s.state.Load()
	why := s.scrub(err)
	next := &state{byName: before.byName, notes: before.notes, why: why, away: before.away}
	if before.conn != nil {
		next.away = time.Now()
	}
	s.enter(next)
	level := slog.LevelWarn
	if s.Optional {
		level = slog.LevelInfo
	}
	if before.conn != nil || before.why != why {
		s.log.Log(context.Background(), level, "MCP server does not answer", "server", s.Name, "why", why)
		s.servers.publish()
	}
}

// scrub returns an error as text for operators: without the URL and the values of variables and headers, in one line.
func (s *Server) scrub(err error) string {
	text := s.hide(err.Error())
	if s.URL != "" {
		text = strings.ReplaceAll(text, s.URL, secret.Masked)
	}
	text = strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
	return textsafe.Line(strings.ReplaceAll(text, "\n", " "))
}

const minHidden = 8 // bytes of a word of a header's value: it may be a token

// hide masks the values of variables and headers in a text of the server, which may repeat them.
func (s *Server) hide(text string) string {
	hidden := slices.Clone(s.secrets)
	for _, value := range s.Headers {
		hidden = append(hidden, string(value))
		for _, word := range strings.Fields(string(value)) {
			if len(word) >= minHidden {
				hidden = append(hidden, word)
			}
		}
	}
	slices.SortFunc(hidden, func(a, b string) int { return len(b) - len(a) }) // one may be part of another
	for _, value := range hidden {
		if value != "" {
			text = strings.ReplaceAll(text, value, secret.Masked)
		}
	}
	return text
}

const logPause = 5 * time.Second // between two lines about calls of one server

// lost logs a call without an answer, at most once per logPause.
func (s *server) lost(tool string, err error) {
	s.logging.Lock()
	if !s.logged.IsZero() && time.Since(s.logged) < logPause {
		s.missed++
		s.logging.Unlock()
		return
	}
	missed := s.missed
	s.missed, s.logged = 0, time.Now()
	s.logging.Unlock() // the log may block
	s.log.Warn("call of an MCP server's tool not answered",
		"server", s.Name, "tool", tool, "error", s.scrub(err), "calls_not_logged", missed)
}

const (
	restart   = 30 * time.Second // a server that is away for less may be restarting: calls wait for it
	awayRetry = 2 * time.Second  // the Retry-After of calls to a server that is away
)

// connected returns nil when the server has a connection other than useless, which a call could not use. It fails when
// ctx ends, or when the server has been away for longer than restart. In either case it asks for a connection attempt
// soon, so that a retried call may succeed.
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
		default: // already requested
		}
		waiting, cancel := context.WithTimeout(ctx, left)
		select {
		case <-now.replaced:
			cancel()
			continue
		case <-waiting.Done():
		case <-s.servers.ctx.Done():
		}
		cancel()
		if errors.Is(ctx.Err(), context.Canceled) {
			return registry.Cancelled().With(registry.DispatchedNo)
		}
		return s.notConnected()
	}
}

func (s *server) notConnected() error {
	e := registry.Errorf(registry.CodeNotConnected, "%s", s.unavailable()).With(registry.DispatchedNo)
	e.RetryAfter = awayRetry
	return e
}

// unavailable returns the text for callers and models that the server is not connected.
func (s *server) unavailable() string {
	return fmt.Sprintf("The MCP server %q does not answer; the gateway keeps retrying. "+
		"To find the cause, run farhand doctor on the gateway's machine.", s.Name)
}

package registry

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
)

// Local is a session whose socket is on this pod, with the tools it offers and the calls in flight to it. What it
// holds is the truth; the store has a copy that is written again whenever the store lost it. Safe for concurrent use.
type Local struct {
	presence *Presence
	key      Key
	conn     Conn

	// write serialises what is written to the store, so that two changes cannot overtake one another.
	write sync.Mutex

	mu      sync.Mutex
	session Session
	tools   []ToolSpec // ordered by name; replaced, never changed in place
	flights map[string]*flight
	closed  bool
}

func newLocal(p *Presence, s Session, c Conn) *Local {
	return &Local{presence: p, key: s.Key, conn: c, session: s}
}

// Session returns the session as it is now. The caller must not change its map and slice.
func (l *Local) Session() Session {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session
}

// Tools returns the tools offered now, ordered by name. The caller must not change the slice.
func (l *Local) Tools() []ToolSpec {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tools
}

// Tool returns the tool of that name.
func (l *Local) Tool(name string) (ToolSpec, bool) {
	tools := l.Tools()
	i, ok := slices.BinarySearchFunc(tools, name, func(t ToolSpec, n string) int { return strings.Compare(t.Name, n) })
	if !ok {
		return ToolSpec{}, false
	}
	return tools[i], true
}

func (l *Local) generation() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session.Generation
}

func (l *Local) entry() Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Entry{Session: l.session, Tools: l.tools}
}

// Update changes the attributes of the session. change must not alter the key, the pod or the generation. When the
// store is away the change stays local until the next announcement; only losing the session is an error.
func (l *Local) Update(ctx context.Context, change func(*Session)) error {
	l.write.Lock()
	defer l.write.Unlock()
	s := l.Session().Clone()
	change(&s)
	if err := s.ValidateAttributes(); err != nil {
		return err
	}
	l.mu.Lock()
	l.session = s
	l.mu.Unlock()
	return l.stored("update", l.presence.store.Update(ctx, s))
}

// PutTools adds or replaces the tools in put and removes those named in drop. When the store is away the change
// stays local until the next announcement; only losing the session is an error.
func (l *Local) PutTools(ctx context.Context, put []ToolSpec, drop []string) error {
	l.write.Lock()
	defer l.write.Unlock()
	l.mu.Lock()
	l.tools = mergeTools(l.tools, put, drop)
	s := l.session
	l.mu.Unlock()
	return l.stored("put tools", l.presence.store.PutTools(ctx, s, put, drop))
}

// stored decides what a failed write to the store means for the device: nothing, unless the session is no longer ours.
func (l *Local) stored(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrNotOwner):
		return ErrNotOwner
	default:
		l.presence.log.Warn("store write put off until the next announcement",
			"op", op, "session", l.key.Session, "error", err)
		return nil
	}
}

// restore writes the session to the store again after the store lost it.
func (l *Local) restore(ctx context.Context) error {
	l.write.Lock()
	defer l.write.Unlock()
	l.mu.Lock()
	e, closed := Entry{Session: l.session, Tools: l.tools}, l.closed
	l.mu.Unlock()
	if closed {
		return nil
	}
	s, err := l.presence.store.Restore(ctx, e)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.session.Generation = s.Generation
	l.mu.Unlock()
	return nil
}

// replaced ends the socket because a newer connection has the session. It leaves the table at once: calls made from
// now on go to the newer one, while this socket is still saying goodbye.
func (l *Local) replaced() {
	l.presence.remove(l)
	l.conn.Close(CloseReplaced)
}

// Close ends the session's stay on this pod: its calls in flight fail with connection_lost, and the store forgets it
// unless a newer connection has claimed it. It is idempotent. ctx bounds the store's part.
func (l *Local) Close(ctx context.Context) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.closed = true
	flights := l.flights
	l.flights = nil
	l.mu.Unlock()

	l.presence.remove(l)
	for _, f := range flights {
		f.finish(Reply{Err: Errorf(CodeConnectionLost,
			"The device disconnected before it answered; the tool may have run.").With(DispatchedYes)})
	}

	l.write.Lock()
	defer l.write.Unlock()
	if _, err := l.presence.store.Release(ctx, l.Session()); err != nil {
		l.presence.log.Warn("session not released; its keys expire by themselves",
			"session", l.key.Session, "error", err)
	}
}

// kicked ends the socket because an operator wants the session gone.
func (l *Local) kicked() {
	l.presence.remove(l)
	l.conn.Close(CloseKicked)
}

func mergeTools(have, put []ToolSpec, drop []string) []ToolSpec {
	byName := make(map[string]ToolSpec, len(have)+len(put))
	for _, t := range have {
		byName[t.Name] = t
	}
	for _, name := range drop {
		delete(byName, name)
	}
	for _, t := range put {
		byName[t.Name] = t
	}
	merged := make([]ToolSpec, 0, len(byName))
	for _, t := range byName {
		merged = append(merged, t)
	}
	slices.SortFunc(merged, func(a, b ToolSpec) int { return strings.Compare(a.Name, b.Name) })
	return merged
}

package chat

import (
	"context"
	"sync"

	"github.com/farhand/farhand/registry"
)

// gates let the turns of one conversation that arrive at this pod through one by one, in the order they came. Only the
// first of them asks the store, so a queue costs the store no more than one waiting turn does, and what a turn emits is
// through before the next one of the same socket emits anything.
type gates struct {
	waiting int // how many may wait at one gate

	mu    sync.Mutex
	byKey map[registry.Key]*gate
}

// gate is one conversation that has visitors. slot holds one token while a visitor is inside.
type gate struct {
	slot    chan struct{}
	users   int
	waiting int
}

// visitor is one turn at a gate.
type visitor struct {
	gates *gates
	gate  *gate
	key   registry.Key

	inside, waits bool
}

// enter lets a turn through as soon as those before it have left. It fails when too many wait, when ctx ends or when
// closing is closed; after that, there is nothing to leave.
func (g *gates) enter(ctx context.Context, key registry.Key, closing <-chan struct{}) (*visitor, error) {
	v := g.visit(key)
	select {
	case v.gate.slot <- struct{}{}:
		v.inside = true
		return v, nil
	default:
	}
	if err := v.wait(); err != nil {
		v.leave()
		return nil, err
	}
	select {
	case v.gate.slot <- struct{}{}:
		v.inside = true
		return v, nil
	case <-closing:
		v.leave()
		return nil, draining()
	case <-ctx.Done():
		v.leave()
		return nil, context.Cause(ctx)
	}
}

func (g *gates) visit(key registry.Key) *visitor {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.byKey[key]
	if at == nil {
		if g.byKey == nil {
			g.byKey = make(map[registry.Key]*gate)
		}
		at = &gate{slot: make(chan struct{}, 1)}
		g.byKey[key] = at
	}
	at.users++
	return &visitor{gates: g, gate: at, key: key}
}

// wait counts the turn among those that wait, once. It fails when there are enough of them.
func (v *visitor) wait() error {
	v.gates.mu.Lock()
	defer v.gates.mu.Unlock()
	if v.waits {
		return nil
	}
	if v.gate.waiting >= v.gates.waiting {
		return busy(nil)
	}
	v.waits = true
	v.gate.waiting++
	return nil
}

// waited takes the turn from those that wait.
func (v *visitor) waited() {
	v.gates.mu.Lock()
	defer v.gates.mu.Unlock()
	if v.waits {
		v.waits = false
		v.gate.waiting--
	}
}

// leave lets the next one in. It is called once.
func (v *visitor) leave() {
	v.waited()
	if v.inside {
		<-v.gate.slot
	}
	v.gates.mu.Lock()
	defer v.gates.mu.Unlock()
	if v.gate.users--; v.gate.users == 0 {
		delete(v.gates.byKey, v.key)
	}
}

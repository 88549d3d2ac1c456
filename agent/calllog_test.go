package agent_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// fakeCallLog keeps records in memory and remembers what else it was told.
type fakeCallLog struct {
	mu       sync.Mutex
	byID     map[string]*entry
	byKey    map[string]*entry
	finished []finish
	startErr error
	running  sync.WaitGroup
}

type entry struct {
	rec  registry.Record
	done chan struct{}
}

// finish is the end of a call without a record.
type finish struct {
	rec registry.Record
	res registry.Result
	err error
}

func newCallLog(t *testing.T) *fakeCallLog {
	l := &fakeCallLog{byID: make(map[string]*entry), byKey: make(map[string]*entry)}
	t.Cleanup(l.running.Wait)
	return l
}

func (*fakeCallLog) AmendWith(registry.Amend, func(string) bool) {} // no other pod stores anything here

func (l *fakeCallLog) Finish(rec *registry.Record, res registry.Result, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finished = append(l.finished, finish{*rec, res, err})
}

func (l *fakeCallLog) Start(
	_ context.Context, rec registry.Record, run func(context.Context) (registry.Result, error),
) (registry.Record, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.startErr != nil {
		return registry.Record{}, false, l.startErr
	}
	if e := l.byKey[rec.IdempotencyKey]; e != nil {
		return e.rec, false, nil
	}
	e := &entry{rec: rec, done: make(chan struct{})}
	l.byID[rec.CallID] = e
	if rec.IdempotencyKey != "" {
		l.byKey[rec.IdempotencyKey] = e
	}
	l.running.Go(func() {
		res, err := run(context.Background())
		l.conclude(e, res, err)
	})
	return rec, true, nil
}

func (l *fakeCallLog) conclude(e *entry, res registry.Result, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	switch {
	case err != nil:
		e.rec.Apply(registry.EventLose, registry.Change{Err: registry.AsError(err)}, now)
	case res.Success:
		e.rec.Apply(registry.EventSucceed, registry.Change{Result: &res}, now)
	default:
		e.rec.Apply(registry.EventFail, registry.Change{Result: &res}, now)
	}
	close(e.done)
}

func (l *fakeCallLog) ByKey(_ context.Context, _, key string) (registry.Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.byKey[key]; e != nil {
		return e.rec, nil
	}
	return registry.Record{}, registry.ErrNoCall
}

func (l *fakeCallLog) WaitOutcome(
	ctx context.Context, tenant, id string, wait time.Duration,
) (registry.Record, error) {
	return l.Wait(ctx, tenant, id, wait)
}

func (l *fakeCallLog) Wait(ctx context.Context, _, id string, wait time.Duration) (registry.Record, error) {
	l.mu.Lock()
	e := l.byID[id]
	l.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-e.done:
	case <-ctx.Done():
	case <-timer.C:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return e.rec, nil
}

func (l *fakeCallLog) ends() []finish {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.finished
}

// Attend notes that the call can be found.
func (l *fakeCallLog) Attend(ctx context.Context, rec *registry.Record, wait func(context.Context) error) error {
	rec.Stored = true
	return wait(ctx)
}

// Hold keeps a record that nothing runs for.
func (l *fakeCallLog) Hold(_ context.Context, rec registry.Record) (registry.Record, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.byKey[rec.IdempotencyKey]; e != nil {
		return e.rec, false, nil
	}
	e := &entry{rec: rec, done: make(chan struct{})}
	l.byID[rec.CallID] = e
	if rec.IdempotencyKey != "" {
		l.byKey[rec.IdempotencyKey] = e
	}
	return rec, true, nil
}

func (l *fakeCallLog) Begin(
	_ context.Context, _ share.Owner, callID string, _ time.Duration,
	run func(context.Context, registry.Record) (registry.Result, error),
) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.byID[callID]
	if e == nil || e.rec.HoldMS == 0 || e.rec.State.Final() {
		return false, nil
	}
	e.rec.HoldMS = 0
	rec := e.rec
	l.running.Go(func() {
		res, err := run(context.Background(), rec)
		l.end(e, res, err)
	})
	return true, nil
}

func (l *fakeCallLog) Refuse(_ context.Context, _, callID string, why *registry.Error) (bool, error) {
	l.mu.Lock()
	e := l.byID[callID]
	held := e != nil && e.rec.HoldMS > 0 && !e.rec.State.Final()
	l.mu.Unlock()
	if held {
		l.end(e, registry.Result{}, why)
	}
	return held, nil
}

// end ends the record of a call that was held.
func (l *fakeCallLog) end(e *entry, res registry.Result, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change := registry.Change{Result: &res}
	if err != nil {
		change = registry.Change{Err: registry.AsError(err)}
	}
	e.rec.Apply(e.rec.EndEvent(res, err), change, time.Now())
	close(e.done)
}

package routing

import (
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// detachedCalls are calls in flight whose device lost its connection but can resume: it keeps its results and sends
// them after it has reconnected. Calls without an answer within registry.ResumeWait fail. The zero value is ready to
// use.
type detachedCalls struct {
	mu        sync.Mutex
	bySession map[registry.Key]map[string]*inFlightCall // a session's calls by id; never empty
}

func (o *detachedCalls) add(f *inFlightCall) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bySession == nil {
		o.bySession = make(map[registry.Key]map[string]*inFlightCall)
	}
	calls := o.bySession[f.key]
	if calls == nil {
		calls = make(map[string]*inFlightCall)
		o.bySession[f.key] = calls
	}
	calls[f.callID] = f
	f.resume = time.AfterFunc(registry.ResumeWait, func() {
		if o.remove(f) {
			f.loseConnection()
		}
	})
}

// take removes and returns the session's call with that id. It returns nil if there is none, or if a device with these
// proofs may not answer it. note is as in LocalSession.takeCall.
func (o *detachedCalls) take(
	key registry.Key, callID string, proofs []string, note func(*inFlightCall),
) *inFlightCall {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.bySession[key][callID]
	if f == nil || !registry.MayAnswer(f.proof, proofs) {
		return nil
	}
	o.deleteLocked(f)
	f.resume.Stop()
	if note != nil {
		note(f)
	}
	return f
}

func (o *detachedCalls) has(key registry.Key, callID string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bySession[key][callID] != nil
}

// waits reports whether the session has a detached call that a device with these proofs may answer.
func (o *detachedCalls) waits(key registry.Key, proofs []string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, f := range o.bySession[key] {
		if registry.MayAnswer(f.proof, proofs) {
			return true
		}
	}
	return false
}

// remove removes this in-flight call, but not another one with the same id. It reports whether the call was there.
func (o *detachedCalls) remove(f *inFlightCall) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bySession[f.key][f.callID] != f {
		return false
	}
	o.deleteLocked(f)
	f.resume.Stop()
	return true
}

// deleteLocked deletes a call that is there. The caller has the lock.
func (o *detachedCalls) deleteLocked(f *inFlightCall) {
	calls := o.bySession[f.key]
	delete(calls, f.callID)
	if len(calls) == 0 {
		delete(o.bySession, f.key)
	}
}

func (o *detachedCalls) len() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, calls := range o.bySession {
		n += len(calls)
	}
	return n
}

// takeAll removes and returns the session's calls that a device with these proofs may answer, because the device has
// reconnected to this pod. It reads only this session's calls: all devices may reconnect at once.
func (o *detachedCalls) takeAll(key registry.Key, proofs []string) []*inFlightCall {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []*inFlightCall
	for _, f := range o.bySession[key] {
		if registry.MayAnswer(f.proof, proofs) && f.resume.Stop() {
			o.deleteLocked(f)
			found = append(found, f)
		}
	}
	return found
}

// fail ends all detached calls, because the pod is closing.
func (o *detachedCalls) fail() {
	o.mu.Lock()
	all := o.bySession
	o.bySession = nil
	o.mu.Unlock()
	for _, calls := range all {
		for _, f := range calls {
			f.resume.Stop()
			f.loseConnection()
		}
	}
}

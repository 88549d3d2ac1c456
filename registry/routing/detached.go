package routing

import (
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// detachedCalls are calls in flight whose device lost its connection but can resume: it keeps its results and sends
// them after it has reconnected. Calls whose answers do not come within registry.ResumeWait fail. The zero value is
// ready.
type detachedCalls struct {
	mu   sync.Mutex
	byID map[string]*inFlightCall
}

func (o *detachedCalls) add(f *inFlightCall) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byID == nil {
		o.byID = make(map[string]*inFlightCall)
	}
	o.byID[f.callID] = f
	f.resume = time.AfterFunc(registry.ResumeWait, func() {
		if o.remove(f) {
			f.loseConnection()
		}
	})
}

// take removes and returns the call of that session with that id. It returns nil if there is none, or if a device with
// these proofs may not answer it. note is as in LocalSession.takeCall.
func (o *detachedCalls) take(
	key registry.Key, callID string, proofs []string, note func(*inFlightCall),
) *inFlightCall {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.byID[callID]
	if f == nil || f.key != key || !registry.MayAnswer(f.proof, proofs) {
		return nil
	}
	delete(o.byID, callID)
	f.resume.Stop()
	if note != nil {
		note(f)
	}
	return f
}

// has reports whether a call of that session with that id is detached.
func (o *detachedCalls) has(key registry.Key, callID string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.byID[callID]
	return f != nil && f.key == key
}

// remove removes this very in-flight call; another one with the same id stays. It reports whether the call was there.
func (o *detachedCalls) remove(f *inFlightCall) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byID[f.callID] != f {
		return false
	}
	delete(o.byID, f.callID)
	f.resume.Stop()
	return true
}

// takeAll removes and returns the calls of a session that a device with these proofs may answer, because the device is
// back on this pod.
func (o *detachedCalls) takeAll(key registry.Key, proofs []string) []*inFlightCall {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []*inFlightCall
	for id, f := range o.byID {
		if f.key == key && registry.MayAnswer(f.proof, proofs) && f.resume.Stop() {
			delete(o.byID, id)
			found = append(found, f)
		}
	}
	return found
}

// fail ends all detached calls, because the pod is closing.
func (o *detachedCalls) fail() {
	o.mu.Lock()
	all := o.byID
	o.byID = nil
	o.mu.Unlock()
	for _, f := range all {
		f.resume.Stop()
		f.loseConnection()
	}
}

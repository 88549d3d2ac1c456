package routing

import (
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// detachedCalls are calls in flight whose device lost its connection but said that it keeps its results and sends them
// again. They fail like others if it does not. The zero value is ready.
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

// take returns the in-flight call of that session with that call id, and forgets it, if it may be answered with these
// proofs.
func (o *detachedCalls) take(key registry.Key, callID string, proofs []string) *inFlightCall {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.takeLocked(key, callID, proofs)
}

func (o *detachedCalls) takeLocked(key registry.Key, callID string, proofs []string) *inFlightCall {
	f := o.byID[callID]
	if f == nil || f.key != key || !registry.MayAnswer(f.owner, proofs) {
		return nil
	}
	delete(o.byID, callID)
	f.resume.Stop()
	return f
}

// has reports whether a call of that session waits.
func (o *detachedCalls) has(key registry.Key, callID string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.byID[callID]
	return f != nil && f.key == key
}

// takeAnswered is take for who has the call's answer; note is told of the in-flight call before anybody can miss it.
func (o *detachedCalls) takeAnswered(key registry.Key, callID string, proofs []string, note func(*inFlightCall)) *inFlightCall {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.takeLocked(key, callID, proofs)
	note(f)
	return f
}

// remove forgets this very in-flight call; another one of the same id stays. It reports whether it was there.
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

// takeAll returns the in-flight calls of a session that may be answered with these proofs, and forgets them: its device
// is back on this pod.
func (o *detachedCalls) takeAll(key registry.Key, proofs []string) []*inFlightCall {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []*inFlightCall
	for id, f := range o.byID {
		if f.key == key && registry.MayAnswer(f.owner, proofs) && f.resume.Stop() {
			delete(o.byID, id)
			found = append(found, f)
		}
	}
	return found
}

// fail ends all of them: the pod is closing.
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

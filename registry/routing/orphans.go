package routing

import (
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// orphans are calls in flight whose device lost its connection but said that it keeps its results and sends them
// again. They fail like others if it does not. The zero value is ready.
type orphans struct {
	mu   sync.Mutex
	byID map[string]*flight
}

func (o *orphans) add(f *flight) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byID == nil {
		o.byID = make(map[string]*flight)
	}
	o.byID[f.callID] = f
	f.resume = time.AfterFunc(registry.ResumeWait, func() {
		if o.leave(f) {
			f.loseConnection()
		}
	})
}

// take returns the flight of that session with that call id, and forgets it, if it may be answered with these proofs.
func (o *orphans) take(key registry.Key, callID string, proofs []string) *flight {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.takeLocked(key, callID, proofs)
}

func (o *orphans) takeLocked(key registry.Key, callID string, proofs []string) *flight {
	f := o.byID[callID]
	if f == nil || f.key != key || !registry.MayAnswer(f.owner, proofs) {
		return nil
	}
	delete(o.byID, callID)
	f.resume.Stop()
	return f
}

// has reports whether a call of that session waits.
func (o *orphans) has(key registry.Key, callID string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.byID[callID]
	return f != nil && f.key == key
}

// takeAnswered is take for who has the call's answer; note is told of the flight before anybody can miss it.
func (o *orphans) takeAnswered(key registry.Key, callID string, proofs []string, note func(*flight)) *flight {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.takeLocked(key, callID, proofs)
	note(f)
	return f
}

// leave forgets this very flight; another one of the same id stays. It reports whether it was there.
func (o *orphans) leave(f *flight) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byID[f.callID] != f {
		return false
	}
	delete(o.byID, f.callID)
	f.resume.Stop()
	return true
}

// takeAll returns the flights of a session that may be answered with these proofs, and forgets them: its device is back on
// this pod.
func (o *orphans) takeAll(key registry.Key, proofs []string) []*flight {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []*flight
	for id, f := range o.byID {
		if f.key == key && registry.MayAnswer(f.owner, proofs) && f.resume.Stop() {
			delete(o.byID, id)
			found = append(found, f)
		}
	}
	return found
}

// fail ends all of them: the pod is closing.
func (o *orphans) fail() {
	o.mu.Lock()
	all := o.byID
	o.byID = nil
	o.mu.Unlock()
	for _, f := range all {
		f.resume.Stop()
		f.loseConnection()
	}
}

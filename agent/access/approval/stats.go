package approval

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
)

// Stats has the undecided approvals that this pod requested.
type Stats struct {
	Waiting int64
	Oldest  time.Duration // since the oldest was requested; 0: none waits
}

// Stats returns the counts. Decisions of other pods about asynchronous calls are seen within sweepPause. At most
// maxWaiting approvals are counted. A restarted pod does not count those it requested before.
func (k *Service) Stats() Stats {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := Stats{Waiting: int64(len(k.asked))}
	for _, at := range k.asked {
		s.Oldest = max(s.Oldest, time.Since(at))
	}
	return s
}

func (k *Service) noteAsked(ref registry.ApprovalRef) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.asked) < maxWaiting {
		k.asked[ref] = time.Now()
	}
}

func (k *Service) noteEnded(refs ...registry.ApprovalRef) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, ref := range refs {
		delete(k.asked, ref)
	}
}

// forgetDecided stops counting approvals that are decided, expired or gone. Those with a caller here end with Await.
func (k *Service) forgetDecided() {
	k.mu.Lock()
	refs := slices.Collect(maps.Keys(k.asked))
	refs = slices.DeleteFunc(refs, func(ref registry.ApprovalRef) bool { return len(k.subscribers[ref]) > 0 })
	k.mu.Unlock()
	for batch := range slices.Chunk(refs, pollBatch) {
		ctx, cancel := context.WithTimeout(k.ctx, storeTimeout)
		verdicts, err := k.cfg.Store.Verdicts(ctx, batch)
		cancel()
		if err != nil {
			return // the next sweep retries
		}
		for i, v := range verdicts {
			if v.State == "" || v.Final() {
				k.noteEnded(batch[i])
			}
		}
	}
}

package metrics

import (
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/registry"
)

// summary counts what pods tell each other about their load. Prometheus' counters cannot be read one by one without its
// protocol's types. It is safe for concurrent use.
type summary struct {
	calls, failed atomic.Int64
	answered      spread
	refused       map[registry.Code]*atomic.Int64 // never changes
	redis         spread
	redisFailed   atomic.Int64
}

// turnedAway are the errors of requests that a pod turned away, and that an operator may have to act on.
var turnedAway = []registry.Code{
	registry.CodeUnauthenticated, registry.CodeForbidden, registry.CodePolicyDenied, registry.CodeApprovalDenied,
	registry.CodeRateLimited, registry.CodeBusy, registry.CodeStoreUnavailable, registry.CodeDraining,
	registry.CodeInternal,
}

func newSummary() *summary {
	s := &summary{
		answered: newSpread(callBuckets), redis: newSpread(redisBuckets),
		refused: make(map[registry.Code]*atomic.Int64, len(turnedAway)),
	}
	for _, code := range turnedAway {
		s.refused[code] = new(atomic.Int64)
	}
	return s
}

func (s *summary) call(end agent.CallEnd) {
	s.calls.Add(1)
	switch end.Outcome {
	case agent.OutcomeSucceeded:
		s.answered.add(end.Duration)
	case agent.OutcomeFailed:
		s.answered.add(end.Duration)
		s.failed.Add(1)
	case agent.OutcomeReplayed:
	default:
		s.failed.Add(1)
	}
}

func (s *summary) roundTrip(took time.Duration, failed redisstore.Failure) {
	s.redis.add(took)
	if failed != redisstore.FailureNone {
		s.redisFailed.Add(1)
	}
}

// Fill sets the counters of a pod's status.
func (s *Set) Fill(p *wire.PodStatus) {
	n := s.summary
	p.Calls, p.CallsFailed, p.Durations = n.calls.Load(), n.failed.Load(), n.answered.buckets()
	p.Refused = make(map[string]int64)
	for code, count := range n.refused {
		if count := count.Load(); count > 0 {
			p.Refused[string(code)] = count
		}
	}
	if p.Redis != nil {
		p.Redis.Failed, p.Redis.Durations = n.redisFailed.Load(), n.redis.buckets()
	}
}

// spread counts durations by bucket. It is safe for concurrent use.
type spread struct {
	bounds []float64 // in seconds
	counts []atomic.Int64
}

func newSpread(bounds []float64) spread { return spread{bounds, make([]atomic.Int64, len(bounds)+1)} }

func (s *spread) add(d time.Duration) {
	seconds, i := d.Seconds(), 0
	for i < len(s.bounds) && seconds > s.bounds[i] {
		i++
	}
	s.counts[i].Add(1)
}

func (s *spread) buckets() []wire.Bucket {
	all := make([]wire.Bucket, len(s.counts))
	for i := range s.counts {
		all[i].Count = s.counts[i].Load()
		if i < len(s.bounds) {
			all[i].MaxMS = s.bounds[i] * 1000
		}
	}
	return all
}

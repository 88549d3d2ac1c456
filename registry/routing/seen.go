package routing

import (
	"hash/maphash"

	"github.com/farhand/farhand/internal/cache"
)

// seenLimit is how many calls are remembered at least.
const seenLimit = 1 << 15

// seenCalls remembers recent calls, so that a message delivered twice (a client library that re-sent it after a
// lost reply, say) reaches the device once. It is safe for concurrent use.
type seenCalls struct {
	seeds [2]maphash.Seed
	calls *cache.Cache[seenCall, struct{}]
}

// seenCall is a call as it went to one claim of a session. Its id is stored as a hash of 128 bits under secret seeds,
// because every garbage collection would scan tens of thousands of strings.
type seenCall struct {
	id         [2]uint64
	generation int64
}

func newSeenCalls() *seenCalls {
	return &seenCalls{
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		calls: cache.New[seenCall, struct{}](seenLimit, 0),
	}
}

// has reports whether the call is remembered.
func (s *seenCalls) has(id string, generation int64) bool { return s.calls.Has(s.call(id, generation)) }

// add remembers the call. It reports whether the call is new to that generation.
func (s *seenCalls) add(id string, generation int64) bool {
	_, known := s.calls.GetOrPut(s.call(id, generation), struct{}{}, 1)
	return !known
}

func (s *seenCalls) call(id string, generation int64) seenCall {
	return seenCall{[2]uint64{maphash.String(s.seeds[0], id), maphash.String(s.seeds[1], id)}, generation}
}

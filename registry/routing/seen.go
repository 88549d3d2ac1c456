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

// seenCall is one attempt of a call, as it went to one claim of a session. Its id is stored as a hash of 128 bits under
// secret seeds, because every garbage collection would scan tens of thousands of strings.
type seenCall struct {
	id         [2]uint64
	attempt    int64
	generation int64
}

func newSeenCalls() *seenCalls {
	return &seenCalls{
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		calls: cache.New[seenCall, struct{}](seenLimit, 0),
	}
}

// has reports whether the call is remembered.
func (s *seenCalls) has(id string, generation int64) bool {
	return s.calls.Has(s.key(id, 0, generation))
}

// add remembers an attempt of a call. It reports whether the attempt is new to that generation.
func (s *seenCalls) add(id string, attempt, generation int64) bool {
	_, known := s.calls.GetOrPut(s.key(id, attempt, generation), struct{}{}, 1)
	return !known
}

func (s *seenCalls) key(id string, attempt, generation int64) seenCall {
	return seenCall{[2]uint64{maphash.String(s.seeds[0], id), maphash.String(s.seeds[1], id)}, attempt, generation}
}

package ws

import (
	"math"
	"math/rand/v2"
	"slices"
)

// maxEndedCalls bounds the calls whose numbers are kept after they ended without an answer.
const maxEndedCalls = 1024

// callNumbers are the ids of calls in messages to a device that knows only numbers. A call keeps its number while it is
// in flight, of which the session bounds how many there are. A call that ended without an answer (cancelled, timed out)
// keeps it for a late answer; only the last maxEndedCalls of those are kept. The zero value is ready. It is not safe
// for concurrent use.
type callNumbers struct {
	last  int64            // zero: none was given yet
	calls map[int64]string // nil: none
	of    map[string]int64 // numbers of the calls in flight; nil: none
	ended []int64          // numbers of the others, the oldest first
}

// next returns a number that no call has. The first one is random, so that a late answer to a former connection is not
// taken for another call's. Small devices keep a number in 32 bits, so the numbers begin again before those are used
// up.
func (n *callNumbers) next() int64 {
	if n.last == 0 {
		n.last = rand.Int64N(1 << 30)
	}
	for {
		if n.last++; n.last > math.MaxInt32 {
			n.last = 1
		}
		if _, taken := n.calls[n.last]; !taken {
			return n.last
		}
	}
}

// add returns the number of a call that is about to be sent.
func (n *callNumbers) add(call string) int64 {
	if n.calls == nil {
		n.calls, n.of = make(map[int64]string), make(map[string]int64)
	}
	number := n.next()
	n.calls[number], n.of[call] = call, number
	return number
}

// end notes that nobody waits for a call any more. It returns the call's number, false if the call is not in flight.
func (n *callNumbers) end(call string) (number int64, ok bool) {
	number, ok = n.of[call]
	if !ok {
		return 0, false
	}
	delete(n.of, call)
	n.ended = append(n.ended, number)
	if len(n.ended) > maxEndedCalls {
		n.remove(n.ended[0])
	}
	return number, true
}

// remove forgets a number, because its call has been answered or was never sent.
func (n *callNumbers) remove(number int64) {
	call, ok := n.calls[number]
	if !ok {
		return
	}
	delete(n.calls, number)
	if n.of[call] == number {
		delete(n.of, call)
	} else if i := slices.Index(n.ended, number); i >= 0 {
		n.ended = slices.Delete(n.ended, i, i+1)
	}
	if len(n.calls) == 0 {
		*n = callNumbers{last: n.last}
	}
}

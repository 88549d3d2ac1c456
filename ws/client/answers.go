package client

import "time"

// Bounds of the answers that are kept, to answer repeated requests, and to send unacknowledged answers again.
const (
	maxAnswers     = 1024
	maxAnswerBytes = 16 << 20
	resendFor      = 15 * time.Minute
)

// answers keeps the latest answers by call id. It is not safe for concurrent use.
type answers struct {
	byID  map[string]*answer
	order []*answer // oldest first
	size  int       // bytes of frames
}

type answer struct {
	id           string
	frame        []byte // as it was sent
	at           time.Time
	link         int64 // the connection it was sent on last; zero before
	acknowledged bool
}

func (a *answers) get(id string) ([]byte, bool) {
	kept, ok := a.byID[id]
	if !ok {
		return nil, false
	}
	return kept.frame, true
}

// put keeps the first answer of a call and forgets the oldest answers over the bounds.
func (a *answers) put(id string, frame []byte, now time.Time) {
	if _, there := a.byID[id]; there {
		return
	}
	if a.byID == nil {
		a.byID = make(map[string]*answer)
	}
	kept := &answer{id: id, frame: frame, at: now}
	a.byID[id] = kept
	a.order = append(a.order, kept)
	a.size += len(frame)
	for len(a.order) > maxAnswers || a.size > maxAnswerBytes && len(a.order) > 1 {
		oldest := a.order[0]
		a.order[0] = nil
		a.order = a.order[1:]
		a.size -= len(oldest.frame)
		delete(a.byID, oldest.id)
	}
}

// acknowledge notes that the gateway has the answer.
func (a *answers) acknowledge(id string) {
	if kept := a.byID[id]; kept != nil {
		kept.acknowledged = true
	}
}

// claim returns the frame of an answer to send on a connection. It returns false if the answer was sent there already,
// or need not be sent.
func (a *answers) claim(id string, link int64) ([]byte, bool) {
	kept := a.byID[id]
	if kept == nil || kept.acknowledged || kept.link == link {
		return nil, false
	}
	kept.link = link
	return kept.frame, true
}

// claimNext is claim for the oldest answer that is to be sent on a connection.
func (a *answers) claimNext(link int64, now time.Time) ([]byte, bool) {
	for _, kept := range a.order {
		if now.Sub(kept.at) > resendFor {
			continue
		}
		if frame, ok := a.claim(kept.id, link); ok {
			return frame, true
		}
	}
	return nil, false
}

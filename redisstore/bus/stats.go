package bus

import "sync/atomic"

// Stats says what waits in a bus, and counts what it sent and what went wrong since it was made.
type Stats struct {
	CallsSent, CallPackets    int64 // envelopes, and the packets they travelled in; also those that failed
	RepliesSent, ReplyPackets int64 // replies, once for every try, and the packets they travelled in

	RepliesRefused   int64 // replies not queued, because too much was waiting
	RepliesPublished int64 // replies published to the channel, because the list did not take them
	RepliesRetried   int64 // replies queued to be pushed again, once for every try
	RepliesLost      int64 // replies that could not be delivered; their callers time out
	Malformed        int64 // messages that were not understood
	Resubscribed     int64 // times the subscription was rebuilt
	Panics           int64 // of the handler
	CallsRefused     int64 // envelopes not queued, because too much was waiting

	CallsQueued, CallBytesQueued     int64 // envelopes that wait to be sent
	RepliesQueued, ReplyBytesQueued  int64 // replies that wait to be sent
	RepliesPutOff, PutOffBytesQueued int64 // replies that could not be sent, and wait for another try
}

type counters struct {
	callsSent, callPackets, repliesSent, replyPackets atomic.Int64

	refused, published, retried, lost, malformed, panics, unsent atomic.Int64
}

// Stats returns the counters.
func (b *Bus) Stats() Stats {
	s := Stats{
		CallsSent: b.counts.callsSent.Load(), CallPackets: b.counts.callPackets.Load(),
		RepliesSent: b.counts.repliesSent.Load(), ReplyPackets: b.counts.replyPackets.Load(),
		RepliesRefused: b.counts.refused.Load(), RepliesPublished: b.counts.published.Load(),
		RepliesRetried: b.counts.retried.Load(), RepliesLost: b.counts.lost.Load(),
		Malformed: b.counts.malformed.Load(), Panics: b.counts.panics.Load(), CallsRefused: b.counts.unsent.Load(),
	}
	for _, queue := range b.envelopes {
		addWaiting(queue, &s.CallsQueued, &s.CallBytesQueued)
	}
	for _, queue := range b.replies {
		addWaiting(queue.first, &s.RepliesQueued, &s.ReplyBytesQueued)
		addWaiting(queue.retries, &s.RepliesPutOff, &s.PutOffBytesQueued)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subscription != nil {
		s.Resubscribed = b.subscription.rebuilt.Load()
	}
	return s
}

func addWaiting[T comparable](b *batcher[T], items, bytes *int64) {
	n, size := b.waiting()
	*items, *bytes = *items+int64(n), *bytes+int64(size)
}

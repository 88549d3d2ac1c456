// Package bus carries messages between the pods of a fleet over Redis: Bus implements registry.Bus. Envelopes (calls,
// evictions) are published to a channel per pod, sharded on a Cluster. Replies are pushed onto a list per pod, which
// keeps them while the pod reconnects. Nobody outside this package knows that.
//
// A message takes this way. Where to start reading is the first file:
//
//	send.go           Send and Reply encode a message and queue it
//	batcher.go        what is queued while a round trip is under way leaves together in the next
//	packet.go         messages to one pod that leave together travel as one packet
//	reply_queue.go    replies that could not be pushed are pushed again
//	subscription.go   the other pod receives packets of envelopes, and probes that it does
//	reply_reader.go   the other pod pops packets of replies off its list
//	bus.go            the receiver unpacks and decodes them, and hands them to the registry.BusHandler
//	stats.go          what waits, and what went wrong
//	codec.go          the binary form of envelopes and replies; message.go says what else a message can be
//
// Both names in Redis are in keys.go, the scripts in lua. The package imports registry, for the contract,
// redisstore/internal/redisconn, for the connection it shares with the store, and internal/strictjson; nothing else of
// ours.
package bus

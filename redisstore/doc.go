// Package redisstore keeps the registry of a fleet in Redis and carries the messages between its pods: Store
// implements registry.Store, Bus implements registry.Bus. It runs on Redis 7.0 or later and on Valkey, as a single
// server, a Cluster, or behind Sentinel.
//
//	conn, err := redisstore.Dial(ctx, redisstore.Options{URL: "redis://localhost:6379"})
//	store, bus := conn.Store(), conn.Bus()
//	...
//	bus.Close(ctx) // after the pod has been closed
//	conn.Close()
//
// # Layout
//
// Every key is built in keys.go, those of messages in bus/keys.go. A session is one hash; the scripts that decide who
// owns it touch nothing else but the memory of it in the same slot. What finds sessions are sorted sets in other slots,
// written after the fact:
//
//	fh:{T/S}                 hash: owner, generation, attributes, set    life: session TTL, refreshed
//	fh:{T/S}:gone            generation, pod and proofs of a released claim   life: session TTL
//	fh:{T/S}:formers         sorted set: pod → when the session left it  life: 15 s
//	fh:{T/S}:chat            list: messages of the conversation, capped  life of all four: history TTL since the last
//	fh:{T/S}:chatmeta        hash: turn, fences, title                   change of any of them, longer than the session
//	fh:{T/S}:draft           what is being said                          and not before the turn's lease has lapsed
//	fh:{T/S}:trail           list: the guards' short memory, capped
//	fh:T:spec:<hash>         specification, once however many offer it   life: twice the session TTL, refreshed
//	fh:T:set:<hash>          tool set: names and specification hashes    life: the same
//	fh:T:sessions            sorted set: session → generation            life of all indexes: twice the session
//	fh:T:device:<id>         the same, per device                        TTL, refreshed with their sessions
//	fh:T:user:<id>           the same, per user
//	fh:{T:labels}:<k>=<v>    the same, per label; all in one slot
//	fh:T:members:<set>       the same, per tool set
//	fh:T:offers              sorted set: (tool name, specification, set) in order of name
//	fh:{T:definitions}:<tool> sorted set: hash of a definition → since when it is offered, in ms
//	fh:T:version             another value after every change of these   life: twice the session TTL
//	fh:T:{call:<id>}         hash: the record of a call          life: retention since the last change, but not
//	                                                             before its deadline; see record_codec.go
//	fh:T:{call:<id>}:events  stream: its log, capped             life: that of the record
//	fh:T:idem:<sha256>       id of the call with that key        life: idempotency TTL
//	fh:T:activity            stream: the feed, capped            life: a day since the last entry
//	fh:{pod:<pod>}:sessions  sorted set: T/S → generation, what to clean up when the pod dies
//	fh:{fh:pods}:emptied     a mark: Redis was emptied, and pods announce their sessions again; life: a lease
//	fh:pods                  sorted set: pod → expiry of its lease in ms of Redis time
//	fh:{pod:<pod>}:replies   list: answers for callers waiting on the pod, with a TTL
//	fh:pod:<pod>             channel: calls and evictions for the pod
//
// The score of an index is the session's generation, a clock reading in microseconds that grows with every claim.
// One number so gives three things: a stable order for paging (the order of connecting), "newest" for free, and
// fencing, because a member is only ever removed up to the generation the remover knows of. A shard or expiry suffix
// is therefore not needed; an entry whose session has gone is removed when somebody reads it.
//
// # Tool sets
//
// Devices of a kind offer the same tools. What a session offers is therefore stored once, as a set under the hash of
// its content; the session names the set and stands in one index for it, however many tools there are. A tool's
// sessions are those of the sets it is in: counted as a sum of sizes, listed by merging the sets' indexes. A session
// that changes its set enters the new index, and the new set the offers, before it leaves the old one. See
// docs/decisions/0006-tool-sets.md.
//
// # Calls
//
// The record of a call is changed by scripts only, each of which gets the moves it may make as arguments: the state
// machine is registry.State and nothing else. What devices and callers said stands in the hash as opaque text. An
// idempotency key is taken after the record it leads to was written, so it never leads nowhere, unless the record
// expired before the key: the next call with the key then takes it over.
//
// # Conversations
//
// One turn at a time writes to a conversation. Its lease is judged by the clock of Redis alone, and every script that
// writes compares the fence of its turn with the current one before it does anything: a pod that was paused cannot
// write behind its successor. Fences are clock readings in microseconds, like generations, so they keep growing when a
// conversation was forgotten.
//
// # What keeps it true
//
// An index may lag behind the hashes for a moment; the hashes decide. A pod that adds index entries checks afterwards
// that its claim is still current and takes them back otherwise: either the newer claim sees what it replaces and
// removes it, or this check does. Refresh compares, three times per session TTL, what Redis has of each session with
// what its pod holds, entry by entry, and has the pod restore what a failover, an eviction or a failed write lost.
// Nothing is written without a TTL, so a fleet that dies leaves nothing behind.
package redisstore

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
// # Keys
//
// docs/architecture.md lists every key with its type, what is in it and how long it lives. Every key is built in
// keys.go, and those of messages in bus/keys.go. A session is one hash. The scripts that decide who owns it touch only
// keys in its slot. Sessions are found through sorted sets, the indexes, which lie in other slots and are written
// afterwards.
//
// The score of a member of an index is the generation of the session: a clock reading in microseconds that grows with
// every claim. It orders pages by when the sessions connected, it finds the newest, and it fences: a member is removed
// only up to the generation that the remover knows of. A member whose session is gone is removed by its next reader.
//
// # Tool sets
//
// Devices of a kind offer the same tools. So a set of tools is stored once, under the hash of its content. A session
// names its set and is in one index for it, however many tools there are. The sessions of a tool are those of the sets
// it is in: they are counted as a sum of sizes, and listed by merging the indexes of the sets. A session that changes
// its set enters the new index, and the new set the offers, before it leaves the old one. See
// docs/decisions/0006-tool-sets.md.
//
// # Calls
//
// Only scripts change the record of a call. Each gets the moves it may make as arguments, so registry.State is the only
// state machine. What devices and callers said is opaque text in the hash. An idempotency key is taken after the record
// it leads to was written. If the record expires before the key, the next call with the key takes it over.
//
// # Conversations
//
// One turn at a time writes to a conversation. Only the clock of Redis decides whether its lease has lapsed. Every
// script that writes first compares the fence of its turn with the current one, so a pod that was paused cannot write
// after its successor. Fences are clock readings in microseconds, as generations are, so they grow even if the
// conversation was forgotten in between.
//
// # Consistency
//
// An index may lag behind the hashes for a moment; the hashes decide. A pod that adds members to indexes checks
// afterwards that its claim is still current, and takes them back if it is not: either the newer claim sees what it
// replaces and removes it, or this check does. Three times per session TTL Refresh compares what Redis has of each
// session with what its pod holds, member by member, and the pod restores what a failover, an eviction or a failed
// write lost. Everything is written with a TTL, so a fleet that dies leaves nothing behind.
package redisstore

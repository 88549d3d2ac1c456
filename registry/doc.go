// Package registry is the domain of Farhand: sessions, the tools they offer, the calls made to them, and the contracts
// a store and a bus must keep. It holds types, tables and interfaces; nothing in it runs by itself.
//
// The packages below it do the work:
//
//	registry/routing       routes calls, waits for answers, keeps the leases of this pod's sessions
//	registry/memory        the store and the bus of a single process
//	registry/registrytest  what every store and every bus must pass
//	registry/legible       text that people and models may be shown
//
// Start with session.go (who a device is), call.go (what is asked of it), state.go (how a call moves on) and store.go
// (what the fleet shares). bus.go has the messages between pods.
//
// Imports: only internal packages and registry/legible. No transport and no storage.
package registry

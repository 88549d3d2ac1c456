// Package routing carries a call to the pod whose socket can answer it, and waits for the answer. It also keeps what a
// pod claims in the store true: its lease, its sessions, the records of its calls.
//
// The life of a session, as this package sees it:
//
//	device dials ──▶ Hub.Open               claims the session in the store; its generation is the fencing token
//	register     ──▶ LocalSession.PutTools  fenced by that generation
//	call         ──▶ Router.Call            to a socket of this pod, or over the bus to the pod that owns the session
//	answer       ──▶ LocalSession.Complete  matched by call id, handed to the pending call or sent back over the bus
//	device goes  ──▶ LocalSession.Close     release-if-mine: a late close can never remove a successor
//
// Start with router.go: Router.Call is the whole way of a call. pending.go, wait.go and sending.go are the waiting for
// an answer; receive.go, inflight.go and complete.go are the side of the device; calls.go, durable.go and cancel.go are
// calls that outlive their requests; upkeep.go is the background work. A Pod ties the pieces together and owns their
// goroutines.
//
// Imports: registry and internal packages. It never learns which store or which bus it works with.
package routing

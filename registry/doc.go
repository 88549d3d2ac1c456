// Package registry is the domain of Farhand: sessions, the tools they offer, the calls made to them, and the
// contracts a store and a bus must keep. It imports no transport and no storage.
//
// The life of a session, as the types of this package see it:
//
//	device dials ──▶ Presence.Open   claims the session in the Store; the claim's generation is its fencing token
//	register     ──▶ Local.PutTools  fenced by that generation
//	call         ──▶ Router.Call     local socket first; otherwise the Bus carries it to the pod that owns the session
//	answer       ──▶ Local.Settle    matched by call id, handed to the local waiter or sent back over the Bus
//	device goes  ──▶ Local.Close     release-if-mine: a late close can never remove a successor
//
// A Pod ties the pieces together and owns their goroutines: its lease, the refreshing of its sessions, and the
// cleaning up after pods that died.
package registry

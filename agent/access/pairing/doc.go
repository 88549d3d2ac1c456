// Package pairing gives devices credentials of their own. A device asks (Ask) and is told a secret, by which it asks
// again, and a short code that it shows to a person. An approver types the code and decides (Find, Decide). The device
// then collects its credential, once (Collect). docs/decisions/0031-pairing.md has the reasons.
//
// A credential may have a public key. Then it proves nothing without a signature of a nonce that the gateway made
// (Challenge, Prove), so a copy of it is of no use.
//
// A paired device may offer only the tools that somebody approved, as they were defined then; all others wait (Review,
// ApproveTools). Everything is in the store, so every pod can do every step.
package pairing

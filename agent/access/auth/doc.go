// Package auth says who is asking, and from where. Both APIs check with it before they serve a request: the identity
// behind a token (Authenticator; Chain chooses between Keys, JWTs and the one token), the web page a request comes from
// (Origins), the address behind trusted proxies (Sources). Issuer makes and revokes credentials, and Live ends what
// still runs of an identity that was revoked or has expired. It also keeps what the APIs share of refusing: the table
// from error codes to HTTP statuses (Problem), the log of refusals (Refusals), and token buckets (Buckets).
//
// Of this project it imports registry and internal packages only. Start reading at auth.go.
package auth

// Package auth says who is asking, and from where. Both APIs check with it before they serve a request: the identity
// behind a token (Authenticator), the web page a request comes from (Origins), the address behind trusted proxies
// (Sources). It also keeps what they share of refusing: the table from error codes to HTTP statuses (Problem), the log
// of refusals (Refusals), and token buckets (Buckets).
//
// It imports registry only. Start reading at auth.go.
package auth

// Package jwt proves identities by JSON Web Tokens that an identity provider signs. A Verifier checks a token from the
// outside in: its length and grammar (envelope.go), the key that may have signed it (keys.go, jwks.go), the times and
// the audience, and then reads the identity out of its claims (claims.go). What was verified once is remembered until
// it ends (verifier.go).
//
// The algorithm is decided by the key, never by the token: a shared secret verifies HS256 only, an RSA key RS256, a key
// on P-256 ES256 and an Ed25519 key EdDSA. Whatever a token says about keys of its own is a reason to refuse it.
//
// golang-jwt checks signatures and times, and go-jose decodes single keys. The set of keys is fetched here, because how
// often, how long and how much may be fetched is for the gateway to say.
package jwt

package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/farhand/farhand/registry"
)

// CredentialToken is Identity.Credential of requests with the shared token.
const CredentialToken = "token"

// StaticToken accepts one token, shared by all devices and callers, and while it is rotated also its predecessors. Its
// holders are admins.
type StaticToken struct {
	digest   [sha256.Size]byte
	previous [][sha256.Size]byte
	rotation *Rotation // nil without previous tokens
}

// NewStaticToken returns an authenticator for the token, which must not be empty.
func NewStaticToken(token string) StaticToken {
	return StaticToken{digest: sha256.Sum256([]byte(token))}
}

// Accepting returns an authenticator that also accepts previous tokens, and notes their use.
func (s StaticToken) Accepting(previous []string, rotation *Rotation) StaticToken {
	s.previous, s.rotation = nil, rotation
	for _, token := range previous {
		s.previous = append(s.previous, sha256.Sum256([]byte(token)))
	}
	return s
}

// Authenticate implements Authenticator. It takes the same time for every wrong token.
func (s StaticToken) Authenticate(_ context.Context, r *http.Request, token string) (Identity, error) {
	digest := sha256.Sum256([]byte(token))
	current, previous := subtle.ConstantTimeCompare(digest[:], s.digest[:]), 0
	for _, old := range s.previous {
		previous |= subtle.ConstantTimeCompare(digest[:], old[:])
	}
	if token == "" || current|previous != 1 {
		return Identity{}, registry.Errorf(registry.CodeUnauthenticated, "A valid bearer token is required.")
	}
	if current != 1 {
		s.rotation.note(r)
	}
	return Identity{Tenant: registry.DefaultTenant, Admin: true, Credential: CredentialToken}, nil
}

// NamesUsers returns false.
func (StaticToken) NamesUsers() bool { return false }

// Rotation counts and logs the use of previous tokens, so that an operator knows when to remove them. It is safe for
// concurrent use.
type Rotation struct {
	sources Sources
	log     *slog.Logger
	lines   *Lines[struct{}]
	uses    atomic.Int64
}

// NewRotation returns a Rotation that writes to log.
func NewRotation(sources Sources, log *slog.Logger) *Rotation {
	return &Rotation{sources: sources, log: log, lines: NewLines[struct{}]()}
}

// Uses returns how many requests and connections used a previous token.
func (n *Rotation) Uses() int64 { return n.uses.Load() }

// note records a request with a previous token. The log is limited like that of refusals.
func (n *Rotation) note(r *http.Request) {
	n.uses.Add(1)
	omitted, ok := n.lines.May(struct{}{})
	if !ok {
		return
	}
	n.log.LogAttrs(context.Background(), slog.LevelWarn, "a token of FARHAND_TOKEN_PREVIOUS is still used",
		slog.String("path", cutShort(r.URL.Path)), slog.String("source", n.sources.Network(r).Addr().String()),
		slog.String("user_agent", cutShort(r.UserAgent())), slog.Int("not_logged_before", omitted))
}

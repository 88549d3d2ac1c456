package auth

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"

	"github.com/farhand/farhand/registry"
)

// wrongTokens is how many wrong tokens are refused as such.
var wrongTokens = Limit{Rate: 2, Burst: 100} // of one source; then they are told to wait

// Kinds of refusals, which have lines in the log of their own: one kind must not crowd out another.
const (
	RefusedOrigin    = "origin"
	RefusedToken     = "token"
	RefusedHandshake = "handshake"
	RefusedRate      = "rate"
	RefusedPairing   = "pairing" // there was no room for another request to pair
	RefusedRole      = "role"    // a device's credential has not the role
)

// RefusalKinds returns all kinds.
func RefusalKinds() []string {
	return []string{RefusedOrigin, RefusedToken, RefusedHandshake, RefusedRate, RefusedPairing, RefusedRole}
}

// Refusals notes who was refused: in the log, so that an operator sees why somebody cannot connect, and by source, so
// that whoever guesses tokens is told to stop. It is safe for concurrent use.
type Refusals struct {
	sources Sources
	log     *slog.Logger
	wrong   *Buckets[netip.Prefix]

	audit   Auditor                  // has samples of wrong tokens, and of tools that are refused
	audited *Lines[string]           // of those
	lines   *Lines[string]           // by kind
	counts  map[string]*atomic.Int64 // by kind; the map never changes
}

// NewRefusals returns what notes refusals in log.
func NewRefusals(sources Sources, log *slog.Logger) *Refusals {
	f := &Refusals{
		audit: NoAudit{}, audited: NewLines[string](),
		sources: sources, log: log, wrong: NewBuckets[netip.Prefix](wrongTokens), lines: NewLines[string](),
		counts: make(map[string]*atomic.Int64),
	}
	for _, kind := range RefusalKinds() {
		f.counts[kind] = new(atomic.Int64)
	}
	return f
}

// AuditTo has wrong tokens noted in the audit log of the default tenant, because they name no other: as many as are
// logged. It is called before anything else.
func (f *Refusals) AuditTo(a Auditor) { f.audit = a }

// noteLogin notes in the audit log that a token was refused.
func (f *Refusals) noteLogin(r *http.Request, err error) {
	omitted, ok := f.audited.May(RefusedToken)
	if !ok {
		return
	}
	e := registry.AuditEntry{
		Tenant: registry.DefaultTenant, Actor: f.sources.ActorOf(Identity{}, r), Action: registry.AuditLogin,
		Target: cutShort(r.URL.Path), Omitted: omitted,
	}
	e.Decide(err)
	f.audit.Note(e)
}

// Tool notes in the audit log that a device may not register a tool: of each tenant as many as are logged of one kind.
func (f *Refusals) Tool(who Identity, session registry.Session, tool string, err error) {
	omitted, ok := f.audited.May("tool of " + who.Tenant)
	if !ok {
		return
	}
	e := registry.AuditEntry{
		Tenant: who.Tenant, Actor: who.Actor(), Action: registry.AuditRegister, Tool: tool,
		SessionID: session.Key.Session, DeviceID: session.DeviceID, Omitted: omitted,
	}
	e.Decide(err)
	f.audit.Note(e)
}

// Count returns how many refusals of a kind there were.
func (f *Refusals) Count(kind string) int64 {
	if n := f.counts[kind]; n != nil {
		return n.Load()
	}
	return 0
}

// Origin notes that a web page was refused, and returns why.
func (f *Refusals) Origin(r *http.Request, err error) error {
	f.Note(r, RefusedOrigin, err, slog.String("origin", cutShort(r.Header.Get("Origin"))),
		slog.String("host", cutShort(r.Host)))
	return err
}

// Token notes that a token was refused, and returns what the client is told: after many in a short time from one source
// that it has to wait. A right token is never refused, whatever else comes from its source. A request without a token
// guesses nothing, and does not count.
func (f *Refusals) Token(r *http.Request, token string, err error) error {
	if !errors.Is(err, registry.CodeUnauthenticated) {
		return err
	}
	f.Note(r, RefusedToken, err, slog.Bool("missing", token == ""))
	if token == "" {
		return err
	}
	f.noteLogin(r, err)
	if f.wrong.Take(f.sources.Of(r), 1) {
		return err
	}
	e := registry.Errorf(registry.CodeRateLimited,
		"Too many wrong tokens came from this address. Wait, and check the token.")
	e.RetryAfter = wrongTokens.Refill() / 10
	return e
}

// Pairing notes that a device could not ask to be paired: it came too often, or there was no room for its request. It
// returns err.
func (f *Refusals) Pairing(r *http.Request, err error) error {
	switch {
	case errors.Is(err, registry.ErrPairingsFull):
		f.Note(r, RefusedPairing, err)
	case errors.Is(err, registry.CodeRateLimited):
		f.Note(r, RefusedRate, err)
	}
	return err
}

// Note writes a line about a refusal, unless there were many of its kind a moment ago. The next line says how many were
// left out. Nothing secret is in it: neither the query nor a header but those given.
func (f *Refusals) Note(r *http.Request, kind string, err error, attrs ...slog.Attr) {
	if n := f.counts[kind]; n != nil {
		n.Add(1)
	}
	omitted, ok := f.lines.May(kind)
	if !ok {
		return
	}
	all := append([]slog.Attr{
		slog.String("refused", kind), slog.String("path", cutShort(r.URL.Path)),
		slog.String("source", f.sources.Of(r).Addr().String()),
		slog.Any("error", err),
	}, attrs...)
	if omitted > 0 {
		all = append(all, slog.Int("not_logged_before", omitted))
	}
	f.log.LogAttrs(context.Background(), slog.LevelWarn, "request refused", all...)
}

// cutShort returns as much of what a client wrote as a line in a log needs.
func cutShort(s string) string {
	const enough = 200
	if len(s) > enough {
		return s[:enough] + "…"
	}
	return s
}

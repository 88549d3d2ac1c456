package auth

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// What may be refused before it is told more briefly.
var (
	wrongTokens  = Limit{Rate: 2, Burst: 100}  // of one source; then they are told to wait
	refusalLines = Limit{Rate: 0.5, Burst: 10} // in the log, of one kind
)

// Kinds of refusals, which have lines in the log of their own: one kind must not crowd out another.
const (
	RefusedOrigin    = "origin"
	RefusedToken     = "token"
	RefusedHandshake = "handshake"
	RefusedRate      = "rate"
)

// Refusals notes who was refused: in the log, so that an operator sees why somebody cannot connect, and by source, so that
// whoever guesses tokens is told to stop. It is safe for concurrent use.
type Refusals struct {
	sources Sources
	log     *slog.Logger
	wrong   *Buckets[netip.Prefix]

	mu      sync.Mutex
	started time.Time
	lines   map[string]*refusalLine // by kind
}

type refusalLine struct {
	bucket  Bucket
	omitted int // since the last line
}

// NewRefusals returns what notes refusals in log.
func NewRefusals(sources Sources, log *slog.Logger) *Refusals {
	return &Refusals{
		sources: sources, log: log, wrong: NewBuckets[netip.Prefix](wrongTokens),
		started: time.Now(), lines: make(map[string]*refusalLine),
	}
}

// Origin notes that a web page was refused, and returns why.
func (f *Refusals) Origin(r *http.Request, err error) error {
	f.Note(r, RefusedOrigin, err, slog.String("origin", cutShort(r.Header.Get("Origin"))),
		slog.String("host", cutShort(r.Host)), slog.String("setting", "FARHAND_ALLOWED_ORIGINS"))
	return err
}

// Token notes that a token was refused, and returns what the client is told: after many in a short time from one source
// that it has to wait. A right token is never refused, whatever else comes from its source; and who has none guesses
// nothing.
func (f *Refusals) Token(r *http.Request, token string, err error) error {
	if !errors.Is(err, registry.CodeUnauthenticated) {
		return err
	}
	f.Note(r, RefusedToken, err, slog.Bool("missing", token == ""))
	if token == "" || f.wrong.Take(f.sources.Of(r), 1) {
		return err
	}
	e := registry.Errorf(registry.CodeRateLimited, "Too many wrong tokens came from this address. Wait, and check the token.")
	e.RetryAfter = wrongTokens.Refill() / 10
	return e
}

// Note writes a line about a refusal, unless there were many of its kind a moment ago. The next line says how many were
// left out. Nothing secret is in it: neither the query nor a header but those given.
func (f *Refusals) Note(r *http.Request, kind string, err error, attrs ...slog.Attr) {
	omitted, ok := f.mayWrite(kind)
	if !ok {
		return
	}
	all := append([]slog.Attr{
		slog.String("refused", kind), slog.String("path", cutShort(r.URL.Path)), slog.String("source", f.sources.Of(r).Addr().String()),
		slog.Any("error", err),
	}, attrs...)
	if omitted > 0 {
		all = append(all, slog.Int("not_logged_before", omitted))
	}
	f.log.LogAttrs(context.Background(), slog.LevelWarn, "request refused", all...)
}

func (f *Refusals) mayWrite(kind string) (omitted int, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	line := f.lines[kind]
	if line == nil {
		line = &refusalLine{}
		f.lines[kind] = line
	}
	if !line.bucket.Take(refusalLines, time.Since(f.started), 1) {
		line.omitted++
		return 0, false
	}
	omitted, line.omitted = line.omitted, 0
	return omitted, true
}

// cutShort returns as much of what a client wrote as a line in a log needs.
func cutShort(s string) string {
	const enough = 200
	if len(s) > enough {
		return s[:enough] + "…"
	}
	return s
}

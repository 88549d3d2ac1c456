package jwt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// published is the set of keys that an issuer publishes. It is fetched when it is needed, at most once every
// Config.Retry whoever asks for whatever key, and never by two at once.
type published struct {
	cfg *Config

	ctx  context.Context // of the fetches; ends with close
	stop context.CancelFunc

	mu      sync.Mutex
	set     *keySet       // nil: none was fetched yet
	fetched time.Time     // when set was
	tried   time.Time     // when the last fetch began
	running chan struct{} // closed when the fetch that runs has ended; nil: none runs
	closed  bool
	fetches sync.WaitGroup
}

func newPublished(cfg *Config) *published {
	p := &published{cfg: cfg}
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

// close ends a fetch that runs, and waits for it.
func (p *published) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stop()
	p.fetches.Wait()
}

// current returns the keys, nil if none can be relied on, and fetches them anew in the background when they are old.
func (p *published) current() *keySet {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Now()
	if p.set == nil || now.Sub(p.fetched) >= p.cfg.Refresh {
		p.fetchLocked(now)
	}
	if p.set != nil && now.Sub(p.fetched) > p.cfg.Refresh+p.cfg.KeepStale {
		return nil
	}
	return p.set
}

// newer waits for a fetch that runs, or for one that may begin now, because a key is missing in what current returned.
func (p *published) newer(ctx context.Context) *keySet {
	p.mu.Lock()
	p.fetchLocked(p.cfg.Now())
	running := p.running
	p.mu.Unlock()
	if running != nil {
		select {
		case <-running:
		case <-ctx.Done():
		}
	}
	return p.current()
}

// fetchLocked begins a fetch, unless one runs or the last was a moment ago.
func (p *published) fetchLocked(now time.Time) {
	if p.closed || p.running != nil || !p.tried.IsZero() && now.Sub(p.tried) < p.cfg.Retry {
		return
	}
	p.tried, p.running = now, make(chan struct{})
	p.fetches.Go(p.fetch)
}

// fetch replaces the set. A set that could not be fetched leaves the one before in place.
func (p *published) fetch() {
	ctx, cancel := context.WithTimeout(p.ctx, fetchTimeout)
	defer cancel()
	keys, refused, err := p.load(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.set, p.fetched = newKeySet(keys), p.cfg.Now()
	}
	close(p.running)
	p.running = nil
	switch {
	case err != nil && p.ctx.Err() == nil:
		p.cfg.Log.Warn("the keys that tokens are checked with were not fetched", "error", err, "known", p.set != nil)
	case refused != nil:
		p.cfg.Log.Debug("some published keys are of no use here", "reasons", refused)
	}
}

func (p *published) load(ctx context.Context) (keys []key, refused, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.cfg.KeySetURL, nil)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := p.cfg.Client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("the URL of the keys answered with status %d", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxKeySet+1))
	if err != nil {
		return nil, nil, err
	}
	if len(body) > maxKeySet {
		return nil, nil, fmt.Errorf("the set of keys is longer than %d bytes", maxKeySet)
	}
	keys, refused, err = parseKeySet(body)
	if err == nil && len(keys) == 0 {
		// An issuer that signs publishes a key. None at all is more likely a mistake than a revocation.
		err = errors.New("the set of keys has none that is of use here")
	}
	return keys, refused, err
}

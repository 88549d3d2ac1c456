package jwt

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// remote is something that an issuer publishes. It is fetched when needed, at most once per Config.Retry for all
// callers, and never concurrently.
type remote[T any] struct {
	cfg  *Config
	name string // for the log
	load func(ctx context.Context) (T, error)

	ctx  context.Context // of the fetches; close cancels it
	stop context.CancelFunc

	mu      sync.Mutex
	value   T             // zero: not fetched yet, or too old
	fetched time.Time     // time of the fetch of value; zero: none
	tried   time.Time     // start of the last fetch
	running chan struct{} // closed when the running fetch ends; nil: none is running
	fetches sync.WaitGroup
}

// newRemote starts the first fetch.
func newRemote[T any](cfg *Config, name string, load func(ctx context.Context) (T, error)) *remote[T] {
	r := &remote[T]{cfg: cfg, name: name, load: load}
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.current()
	return r
}

func (r *remote[T]) close() {
	r.mu.Lock()
	r.stop()
	r.mu.Unlock()
	r.fetches.Wait()
	r.cfg.Client.CloseIdleConnections()
}

// current returns the value, zero if there is no usable one. If it is missing or old, it starts a fetch in the
// background.
func (r *remote[T]) current() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.cfg.Now()
	age := now.Sub(r.fetched)
	if age >= r.cfg.Refresh {
		r.fetchLocked(now)
	}
	if age > r.cfg.Refresh+r.cfg.KeepStale {
		var none T
		return none
	}
	return r.value
}

// newer returns the value after a fetch: the running one, or a new one if Config.Retry allows it.
func (r *remote[T]) newer(ctx context.Context) T {
	r.mu.Lock()
	r.fetchLocked(r.cfg.Now())
	running := r.running
	r.mu.Unlock()
	if running != nil {
		select {
		case <-running:
		case <-ctx.Done():
		}
	}
	return r.current()
}

// fetchLocked starts a fetch, unless one is running or the last began less than Config.Retry ago.
func (r *remote[T]) fetchLocked(now time.Time) {
	if r.ctx.Err() != nil || r.running != nil || !r.tried.IsZero() && now.Sub(r.tried) < r.cfg.Retry {
		return
	}
	r.tried, r.running = now, make(chan struct{})
	r.fetches.Go(r.fetch)
}

// fetch replaces the value. If it fails, the previous value stays.
func (r *remote[T]) fetch() {
	ctx, cancel := context.WithTimeout(r.ctx, fetchTimeout)
	defer cancel()
	value, err := r.load(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.value, r.fetched = value, r.cfg.Now()
	}
	close(r.running)
	r.running = nil
	if err != nil && r.ctx.Err() == nil {
		r.cfg.Log.Warn(r.name+" were not fetched", "error", err, "known", !r.fetched.IsZero())
	}
}

// get reads at most a number of bytes from a URL.
func get(ctx context.Context, client *http.Client, url, accept string, most int) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s returned status %d", url, resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(most)+1))
	if err == nil && len(body) > most {
		err = fmt.Errorf("%s returned more than %d bytes", url, most)
	}
	return body, err
}

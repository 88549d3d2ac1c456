package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/farhand/farhand/cmd/farhand/bench"
	"github.com/farhand/farhand/registry"
)

// get sends a request to a pod of the fleet and returns its answer, which must have this status.
func get(ctx context.Context, url, etag string, status int) (body []byte, tag string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, "", err
	}
	req.Header.Set("Authorization", "Bearer "+benchToken)
	if etag != "" {
		req.Header.Set("If-None-Match", etag)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err == nil && resp.StatusCode != status {
		err = fmt.Errorf("GET %s: %s, want %d: %s", url, resp.Status, status, body)
	}
	return body, resp.Header.Get("ETag"), err
}

// groupedSessions returns how many sessions the grouped listing counts for the tool most of them offer.
func groupedSessions(body []byte) (int, error) {
	var page struct {
		Tools []struct {
			Name     string
			Sessions int
		}
	}
	if err := json.Unmarshal(body, &page); err != nil {
		return 0, err
	}
	most := 0
	for _, t := range page.Tools {
		most = max(most, t.Sessions)
	}
	return most, nil
}

const (
	listingLimit   = 20 * time.Millisecond
	listingCommand = time.Millisecond
)

// rowListing measures the grouped listing of a large fleet, requested repeatedly, and polled with its ETag.
func rowListing(ctx context.Context, l *lab) ([]verdict, error) {
	sessions, requests := quickOr(l.options, 1000, 100_000), quickOr(l.options, 10, 100*l.Repeat)
	f, err := l.startFleet(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer f.close()
	p, err := startPhantom(ctx, f.redis.url, "phantom", registry.DefaultPodLease)
	if err != nil {
		return nil, err
	}
	defer p.close()
	specs, err := phoneSpecs(5)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := p.fill(ctx, l.options, sessions, specs); err != nil {
		return nil, err
	}
	filled := time.Since(began)
	if err := f.probe.slowerThan(ctx, listingCommand); err != nil {
		return nil, err
	}
	fresh, polled, err := f.poll(ctx, requests, sessions)
	if err != nil {
		return nil, err
	}
	slow, err := f.probe.slow(ctx)
	if err != nil {
		return nil, err
	}
	p99 := fresh.Quantile(.99)
	v := verdict{
		What: fmt.Sprintf("grouped listing, %d sessions × 5 tools: p99", sessions), Target: "≤ 20 ms",
		Met: p99 <= listingLimit, Measured: bench.Short(p99),
		Detail: fmt.Sprintf(
			"%d requests: p50 %s, slowest %s; polls with an ETag: p50 %s, p99 %s; filled at %.0f sessions/s",
			requests, bench.Short(fresh.Quantile(.5)), bench.Short(fresh.Max),
			bench.Short(polled.Quantile(.5)), bench.Short(polled.Quantile(.99)), float64(sessions)/filled.Seconds()),
	}
	return []verdict{v, slow.verdict("≤ 1 ms")}, nil
}

// poll requests the grouped listing repeatedly, each time without and with the ETag of the previous answer.
func (f *fleet) poll(ctx context.Context, requests, sessions int) (fresh, polled *bench.Histogram, err error) {
	url := f.pods[0].url + "/api/tools?view=grouped"
	fresh, polled = &bench.Histogram{}, &bench.Histogram{}
	for i := range requests {
		began := time.Now()
		body, tag, err := get(ctx, url, "", http.StatusOK)
		if err != nil {
			return nil, nil, err
		}
		fresh.Record(time.Since(began))
		if n, err := groupedSessions(body); err != nil {
			return nil, nil, err
		} else if n != sessions {
			return nil, nil, fmt.Errorf("the listing counts %d of %d sessions", n, sessions)
		}
		began = time.Now()
		if _, _, err = get(ctx, url, tag, http.StatusNotModified); err != nil {
			return nil, nil, err
		}
		polled.Record(time.Since(began))
		if i%10 == 9 {
			time.Sleep(50 * time.Millisecond) // long enough to include periodic work
		}
	}
	return fresh, polled, nil
}

// offPath are the commands that are not on the critical path of a call: leases, probes, and batched writes about calls.
// All other commands count, so that new ones are noticed.
var offPath = []string{"activity", "call", "pods", "ping", "of a probe", "INFO", "PING", "CLIENT"}

// rowCommands counts the commands in Redis for each synchronous call to another pod. Calls run one after the other, so
// that they share only what the design shares.
func rowCommands(ctx context.Context, l *lab) ([]verdict, error) {
	calls := quickOr(l.options, 50, 500)
	f, err := l.startFleet(ctx, 2)
	if err != nil {
		return nil, err
	}
	defer f.close()
	s := sideOf("farhand", f.pods...)
	o := *l.options
	o.Devices = 1
	if err := s.Connect(ctx, &o.Options); err != nil {
		return nil, err
	}
	defer s.Devices.Close()
	c, err := s.Open(&o.Options, bench.RouteCross)(0)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if code := c.Call(); code != "" {
		return nil, fmt.Errorf("the first call failed: %s", code)
	}
	stop, err := f.probe.monitor()
	if err != nil {
		return nil, err
	}
	for range calls {
		if code := c.Call(); code != "" {
			return nil, fmt.Errorf("a call failed: %s", code)
		}
	}
	kinds := stop()
	on, off := make(map[string]int), make(map[string]int)
	total := 0
	for kind, n := range kinds {
		if isOffPath(kind) {
			off[kind] = n
		} else {
			on[kind] = n
			total += n
		}
	}
	each := float64(total) / float64(calls)
	return []verdict{{
		What: "Redis commands per synchronous cross-pod call, on its critical path", Target: "3",
		Met: each <= 3.05, Measured: fmt.Sprintf("%.2f", each),
		Detail: fmt.Sprintf("%d calls one after the other, seen with MONITOR, per call: %s. Beside it, batched: %s",
			calls, sortedKinds(on, calls), sortedKinds(off, calls)),
	}}, nil
}

func isOffPath(kind string) bool {
	for _, word := range offPath {
		if strings.HasSuffix(kind, " "+word) || kind == word {
			return true
		}
	}
	return false
}

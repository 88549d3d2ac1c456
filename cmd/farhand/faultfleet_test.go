package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/redisstore/redistest"
)

// faultFleet is a fleet whose pods and Redis can be tampered with.
type faultFleet struct {
	redis    *redistest.Server
	proxy    *faultProxy        // nil under Sentinel, which names the address of the primary itself
	servers  *redistest.Servers // under Sentinel; nil: there is only redis
	settings []string

	mu   sync.Mutex
	pods []*pod
}

// startFaultFleet starts n pods on a real Redis behind a proxy that can cut and slow its connections.
func startFaultFleet(t testing.TB, n int, settings ...string) *faultFleet {
	t.Helper()
	return startFaultFleetOn(t, redistest.Start(t), n, settings...)
}

// startFaultFleetOn starts n pods on that Redis, behind a proxy.
func startFaultFleetOn(t testing.TB, server *redistest.Server, n int, settings ...string) *faultFleet {
	t.Helper()
	f := &faultFleet{redis: server, proxy: startFaultProxy(t, server.Addr())}
	f.startPods(t, n, "redis://"+f.proxy.Listen, settings)
	return f
}

// startFailoverFleet starts n pods on a primary with a replica, which Sentinel watches.
func startFailoverFleet(t testing.TB, n int, settings ...string) *faultFleet {
	t.Helper()
	servers := redistest.Sentinel(t)
	f := &faultFleet{redis: servers.Masters[0], servers: servers}
	f.startPods(t, n, servers.URL, settings)
	return f
}

func (f *faultFleet) startPods(t testing.TB, n int, redisURL string, settings []string) {
	t.Helper()
	f.settings = append([]string{
		"FARHAND_REDIS_URL=" + redisURL, redisMayStall, "FARHAND_POD_LEASE=3s",
		"FARHAND_SESSION_TTL=6s", "FARHAND_DRAIN_TIMEOUT=5s", "FARHAND_LOG_LEVEL=error",
	}, settings...)
	for range n {
		f.pods = append(f.pods, startPod(t, f.settings...))
	}
}

// failOver waits until Sentinel has made the replica the primary, has back bring the old primary back, and waits until
// that follows the new one.
func (f *faultFleet) failOver(t testing.TB, back func()) {
	t.Helper()
	f.servers.Promoted()
	back()
	f.servers.Rejoin()
	f.redis = f.servers.Masters[0]
}

func (f *faultFleet) urls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	urls := make([]string, len(f.pods))
	for i, p := range f.pods {
		urls[i] = p.url
	}
	return urls
}

// restart replaces a pod that has ended by a new process at the same address.
func (f *faultFleet) restart(t testing.TB, i int) {
	t.Helper()
	p := startPodAt(t, strings.TrimPrefix(f.pods[i].url, "http://"), f.settings...)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods[i] = p
}

// allListed waits until every pod lists that many sessions, and each is callable.
func (f *faultFleet) allListed(t testing.TB, sessions int, limit time.Duration) {
	t.Helper()
	for _, p := range f.pods {
		eventually(t, limit, fmt.Sprintf("%d sessions are listed", sessions), func() bool {
			return len(toolsOf(t, p.url)) == sessions
		})
	}
}

// heal checks that nothing is left of the faults: all pods ready, no key without an end.
func (f *faultFleet) heal(t *testing.T) {
	t.Helper()
	for _, p := range f.pods {
		eventually(t, waitLimit, "the pod is ready again", func() bool {
			resp, err := http.Get(p.url + "/readyz")
			if err != nil {
				return false
			}
			resp.Body.Close()
			return resp.StatusCode == http.StatusOK
		})
	}
	rdb := redis.NewClient(&redis.Options{Addr: f.redis.Addr()})
	defer rdb.Close()
	for key, ttl := range scanKeys(t, rdb) {
		if ttl < 0 {
			t.Errorf("%s has no TTL", key)
		}
	}
}

// stop ends all pods as an operator would, and looks whether they leave a connection behind.
func (f *faultFleet) stop(t *testing.T) {
	t.Helper()
	for _, p := range f.pods {
		p.signal(syscall.SIGTERM)
		if code := p.exit(t); code != 0 {
			t.Errorf("a pod exited with %d", code)
		}
	}
	others := 0
	if f.servers != nil { // the commands and the subscription of Sentinel
		others = 2
	}
	eventually(t, waitLimit, "no pod is connected to Redis",
		func() bool { return redisClients(t, f.redis) == 1+others })
}

func waitFor(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// measureRedis asks Redis again and again the way the pods do, so that it is known how long the machine kept it from
// answering.
func (f *faultFleet) measureRedis(ctx context.Context, b *ledger) {
	client := redis.NewClient(&redis.Options{Addr: f.proxy.Listen, ReadTimeout: waitLimit, MaxRetries: -1})
	defer client.Close()
	for ctx.Err() == nil {
		began := time.Now()
		_ = client.Ping(context.WithoutCancel(ctx)).Err()
		add(b, &b.control, ledgerControl{time.Now(), time.Since(began)})
		waitFor(ctx, 50*time.Millisecond)
	}
}

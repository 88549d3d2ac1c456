package bench

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
)

// tellingPod serves metrics as a pod does, to who has the token.
func tellingPod(t *testing.T, metrics *string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" || r.Header.Get("Authorization") != "Bearer token" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, *metrics)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestFoundIsWhatWasAddedToThePods: what was counted before the run is not in it, and all pods are.
func TestFoundIsWhatWasAddedToThePods(t *testing.T) {
	const format = `# HELP farhand_routes_total of no interest 7
farhand_routes_total{from="memory"} %d
farhand_routes_total{from="store"} %d
farhand_acknowledgements_total{written="together"} 5
farhand_bus_sent_messages_total{queue="envelopes"} %d
farhand_bus_sent_packets_total{queue="envelopes"} %d
`
	first, second := fmt.Sprintf(format, 1000, 1000, 40, 40), fmt.Sprintf(format, 0, 0, 0, 0)
	s := &Side{Pods: []string{tellingPod(t, &first), tellingPod(t, &second)}, Token: "token"}
	before := s.readCounters(t.Context())
	first, second = fmt.Sprintf(format, 1600, 1100, 240, 90), fmt.Sprintf(format, 300, 0, 100, 50)
	f := found(before, s.readCounters(t.Context()))
	if f == nil || math.Abs(f.Remembered-.9) > 1e-9 || f.EnvelopesPerPacket != 3 || f.Together+f.RepliesPerPacket != 0 {
		t.Errorf("found %+v, want 0.9 remembered and 3 to a packet", f)
	}
	s.Token = "another"
	if f := found(before, s.readCounters(t.Context())); f != nil || f.Text() != "-" {
		t.Errorf("found %+v although the pods do not tell", f)
	}
}

// TestRedisUseIsWhatWasAdded: of every command, without the probe's own.
func TestRedisUseIsWhatWasAdded(t *testing.T) {
	before := RedisUse{"xadd": {10, 20}, "get": {5, 5}, "info": {1, 90}}
	now := RedisUse{"xadd": {14, 40}, "get": {5, 5}, "info": {2, 180}, "evalsha": {2, 30}}
	want := RedisUse{"xadd": {4, 20}, "evalsha": {2, 30}}
	if use := now.Since(before); !maps.Equal(use, want) {
		t.Errorf("%v, want %v", use, want)
	}
}

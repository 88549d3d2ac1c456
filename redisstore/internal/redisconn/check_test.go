package redisconn

import (
	"strings"
	"testing"
)

func TestVersionsOfServers(t *testing.T) {
	if err := checkServer(map[string]string{"redis_version": "6.2.14"}, false); err == nil {
		t.Error("an old server was accepted")
	}
	if err := checkServer(map[string]string{"redis_version": "10.0.0"}, false); err != nil {
		t.Errorf("a new server: %v", err)
	}
	member := map[string]string{"redis_version": "7.0.0", "redis_mode": "cluster"}
	if checkServer(member, false) == nil || checkServer(member, true) != nil {
		t.Error("a member of a cluster is for a cluster only")
	}
}

// A server that may evict sessions is told of, and one that does not let us ask.
func TestWarningsOfServers(t *testing.T) {
	for name, tt := range map[string]struct {
		info map[string]string
		want string // in the warning; empty: none
	}{
		"no INFO":    {nil, "INFO"},
		"no limit":   {map[string]string{"maxmemory": "0", "maxmemory_policy": "allkeys-lru"}, ""},
		"no policy":  {map[string]string{"maxmemory": "1024"}, ""},
		"noeviction": {map[string]string{"maxmemory": "1024", "maxmemory_policy": "noeviction"}, ""},
		"evicts":     {map[string]string{"maxmemory": "1024", "maxmemory_policy": "volatile-ttl"}, "volatile-ttl"},
	} {
		got := serverWarnings(tt.info)
		if len(got) > 1 || (len(got) == 1) != (tt.want != "") || tt.want != "" && !strings.Contains(got[0], tt.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

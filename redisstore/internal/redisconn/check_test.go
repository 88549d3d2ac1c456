package redisconn

import "testing"

func TestVersionsOfServers(t *testing.T) {
	if err := checkServer(map[string]string{"redis_version": "6.2.14"}, false); err == nil {
		t.Error("an old server was accepted")
	}
	if err := checkServer(map[string]string{"redis_version": "10.0.0"}, false); err != nil {
		t.Errorf("a new server: %v", err)
	}
}

package main

import (
	"testing"

	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/sdk/conformance/blackbox"
)

// TestBlackBoxBehindNginx checks three pods from outside, as TestCompose (sdk/soak) checks the fleet of
// deploy/compose.yaml.
func TestBlackBoxBehindNginx(t *testing.T) {
	t.Parallel()
	pods := startFleet(t, 3, redistest.Single(t))
	blackbox.Check(t, blackbox.Fleet{URL: startBalancer(t, pods), Token: fleetToken})
}

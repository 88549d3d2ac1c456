package conformance_test

import (
	"flag"
	"os"
	"testing"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/sdk/conformance/blackbox"
)

var (
	fleetURL = flag.String("fleet", "", "URL of a gateway that runs, for TestFleet; FARHAND_TOKEN is an admin's")
	fleetCA  = flag.String("ca", "", "file of the certificates that -fleet is trusted by; empty: the system's")
)

// TestFleet checks a fleet that runs elsewhere, from outside.
func TestFleet(t *testing.T) {
	if *fleetURL == "" {
		t.Log("no fleet is named (-fleet), so there is nothing to do")
		return
	}
	fleet := blackbox.Fleet{URL: *fleetURL, Token: os.Getenv("FARHAND_TOKEN")}
	if *fleetCA != "" {
		fleet.TLS = testkit.TrustOf(t, *fleetCA)
	}
	blackbox.Check(t, fleet)
}

package docker_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/agent/sandbox/docker/dockertest"
)

// shared is the engine of all tests of this package.
var shared struct {
	*dockertest.Engine
	missing error // why there is none
}

func TestMain(m *testing.M) {
	if shared.missing = dockertest.Available(); shared.missing == nil {
		var err error
		if shared.Engine, err = dockertest.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	code := m.Run()
	if shared.Engine != nil {
		shared.Stop()
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

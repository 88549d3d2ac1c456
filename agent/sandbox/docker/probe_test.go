package docker_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/sandbox/docker"
	"github.com/farhand/farhand/agent/sandbox/docker/dockertest"
)

func TestProbeSaysWhatIsMissing(t *testing.T) {
	if shared.missing != nil {
		t.Skip("no engine: ", shared.missing)
	}
	usable := docker.Config{Pod: "p", Host: shared.Host(), Image: dockertest.Image}
	if err := docker.Probe(t.Context(), usable); err != nil {
		t.Errorf("a usable engine: %v", err)
	}
	nowhere := "unix://" + filepath.Join(t.TempDir(), "none")
	dead := filepath.Join(t.TempDir(), "dead")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	for name, c := range map[string]struct {
		cfg  docker.Config
		says string
	}{
		"no socket":   {docker.Config{Host: nowhere}, "no engine answers at " + nowhere},
		"no listener": {docker.Config{Host: "unix://" + dead}, "no engine answers at"},
		"no image":    {docker.Config{Host: shared.Host(), Image: "no-such:image"}, "docker pull no-such:image"},
		"no address":  {docker.Config{Host: "nonsense"}, "nonsense"},
	} {
		c.cfg.Pod = "p"
		err := docker.Probe(t.Context(), c.cfg)
		if !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	pulled := docker.Config{Pod: "p", Host: shared.Host(), Image: "no-such:image", Pull: true}
	if err := docker.Probe(t.Context(), pulled); err != nil {
		t.Errorf("an image that may be pulled: %v", err)
	}
	_ = os.Remove(dead)
}

package docker

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/sandbox/docker/dockertest"
)

func TestProbeSaysWhatIsMissing(t *testing.T) {
	if shared.missing != nil {
		t.Skip("no engine: ", shared.missing)
	}
	usable := Config{Pod: "p", Host: shared.Host(), Image: dockertest.Image}
	if err := Probe(t.Context(), usable); err != nil {
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
		cfg  Config
		says string
	}{
		"no socket":   {Config{Host: nowhere}, "no engine answers at " + nowhere},
		"no listener": {Config{Host: "unix://" + dead}, "no engine answers at"},
		"no image":    {Config{Host: shared.Host(), Image: "no-such:image"}, "docker pull no-such:image"},
		"no address":  {Config{Host: "nonsense"}, "nonsense"},
	} {
		c.cfg.Pod = "p"
		err := Probe(t.Context(), c.cfg)
		if !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	pulled := Config{Pod: "p", Host: shared.Host(), Image: "no-such:image", Pull: true}
	if err := Probe(t.Context(), pulled); err != nil {
		t.Errorf("an image that may be pulled: %v", err)
	}
	_ = os.Remove(dead)
}

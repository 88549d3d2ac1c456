package docker

import (
	"errors"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/sandbox"
)

// imported makes an image for the test, and returns its name.
func imported(t *testing.T, name string, changes ...string) string {
	t.Helper()
	needEngine(t)
	if err := shared.Import(name, changes...); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestWhatAnImageSaysChangesNothing(t *testing.T) {
	t.Parallel()
	name := imported(t, "farhand-test:says",
		"ENV TOKEN="+canary, "USER root", "WORKDIR /bin", "ENTRYPOINT [\"/bin/false\"]",
		"CMD [\"x\"]", "LABEL "+labelPod+"=other", "HEALTHCHECK --interval=1s CMD touch /workspace/checked")
	f := setUp(t, func(c *Config) { c.Image = name })
	if out := f.sh("env; id -u; pwd"); strings.Contains(out, canary) || !strings.HasSuffix(out, "\n12345\n/workspace") {
		t.Errorf("%q", out)
	}
	if own := f.own(); len(own) != 1 || own[0].Labels[labelPod] != "test" {
		t.Errorf("%v", own)
	}
}

func TestImagesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	volumes := imported(t, "farhand-test:volumes", "VOLUME /data")
	for says, change := range map[string]func(*Config){
		"without VOLUME":            func(c *Config) { c.Image = volumes },
		"docker pull no-such:image": func(c *Config) { c.Image = "no-such:image" },
		"pull the image 127.0.0.1":  func(c *Config) { c.Image, c.Pull = "127.0.0.1:1/no-such:image", true },
	} {
		f := setUp(t, change)
		_, _, _, err := f.run(t.Context(), script("true"))
		if !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// programs are where Chromium may be. Debian's /usr/bin/chromium is a script that adds flags and keys of Google: the
// program behind it is taken.
var programs = [...]string{
	"/usr/lib/chromium/chromium", "chromium", "chromium-browser", "/opt/google/chrome/chrome", "google-chrome-stable",
	"google-chrome", "headless-shell",
}

// Probe starts Chromium and ends it again. The error says why there can be no browser here, and what to do.
func Probe(ctx context.Context, cfg Config) error {
	b, err := New(cfg)
	if err != nil {
		return err
	}
	defer b.Close(context.WithoutCancel(ctx))
	if b.absent != nil {
		return b.absent
	}
	started, err := b.launch(ctx)
	if err != nil {
		return err
	}
	started.close()
	return nil
}

// find returns the program of Chromium. The error says why there is none, and what to do.
func find(cfg Config) (string, error) {
	if !supported {
		return "", errors.New("the tool browser works on Linux only")
	}
	if os.Geteuid() == 0 && !cfg.NoSandbox {
		return "", errors.New("the sandbox of Chromium does not work for root: run the gateway as another user, " +
			"or set FARHAND_BROWSER_NO_SANDBOX")
	}
	if cfg.Program != "" {
		path, err := exec.LookPath(cfg.Program)
		if err != nil {
			return "", fmt.Errorf("FARHAND_BROWSER: %w", err)
		}
		return path, nil
	}
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("no Chromium was found: install it (Debian: apt-get install chromium), or name its program " +
		"with FARHAND_BROWSER")
}

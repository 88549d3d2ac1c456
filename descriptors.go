package farhand

import (
	"context"
	"fmt"

	"github.com/farhand/farhand/api"
)

const (
	// keptBack is the part of its descriptors that a process keeps back from the sockets of devices: a quarter. A third
	// of that is for requests that are served, a third for connections that wait for their client, and the rest for
	// Redis, files and programs.
	keptBack = 4
	// maxIdle is how many connections are kept that wait for their client. Each costs about 10 KiB.
	maxIdle = 10_000
)

// sockets returns how many sockets of devices a process holds that may open this many files.
func (c Config) sockets(files int) int {
	return max(min(c.MaxSockets, files-files/keptBack), 1)
}

// requests returns how many requests with a credential a process serves at a time that may open this many files.
func (c Config) requests(files int) int { return max(min(api.DefaultMaxServed, files/keptBack/3), 2) }

// idle returns how many connections that wait for their client such a process keeps.
func (c Config) idle(files int) int { return max(min(maxIdle, files/keptBack/3), 1) }

// lookAtDescriptors says whether this process may open as many files as it takes to hold all sockets that the
// configuration allows, and how many requests it serves at a time.
func lookAtDescriptors(_ context.Context, cfg Config) (string, error) {
	files := openFiles()
	held, served := cfg.sockets(files), cfg.requests(files)
	if held < cfg.MaxSockets {
		need := (cfg.MaxSockets*keptBack + keptBack - 2) / (keptBack - 1)
		return "", fmt.Errorf("this process may open %d files, so it holds %d sockets of devices and not "+
			"FARHAND_MAX_SOCKETS, %d, and serves %d requests with a credential at a time. Raise the limit to %d "+
			"(LimitNOFILE= of systemd, --ulimit nofile= of Docker, ulimit -n), or set FARHAND_MAX_SOCKETS to what "+
			"this pod needs", files, held, cfg.MaxSockets, served, need)
	}
	return fmt.Sprintf("%d files may be open: enough for FARHAND_MAX_SOCKETS, %d, and for %d requests with a "+
		"credential at a time", files, held, served), nil
}

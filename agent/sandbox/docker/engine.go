// Package docker is the sandbox engine that runs programs in containers, through the API of Docker or a compatible
// engine.
//
// A workspace has one container. Its first command creates it, and later commands reuse it. It has no network, no
// capabilities and a read-only root. Of the host it sees only the folder of the workspace. Its first process, the
// holder, only reads its standard input, which is a connection of this process. When the connection ends, however this
// process died, the holder ends, and with it all processes in the container. The engine then removes the container.
//
// No engine can kill the processes that an exec leaves behind. Therefore the holder counts the processes after each
// command, and a container with remaining processes is removed. docs/decisions/0039-containers.md gives the reasons.
package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/moby/client"

	"github.com/farhand/farhand/agent/sandbox"
)

// Engine runs programs in containers. New creates it, Close ends it.
type Engine struct {
	cfg  Config
	api  *client.Client
	stop context.CancelCauseFunc // ends ctx
	ctx  context.Context         // of all work of the engine
	done chan struct{}           // closed when maintain has ended
	down atomic.Pointer[error]   // why it does not answer; nil: it does

	running, started, failed atomic.Int64 // containers; the last two since the start

	mu     sync.Mutex
	closed bool
	slots  map[string]*slot    // by the id of the workspace
	lost   []*runningContainer // not removed yet, to be retried
}

var _ sandbox.Engine = (*Engine)(nil)

var (
	errClosed   = fmt.Errorf("%w: it has been closed", sandbox.ErrUnavailable)
	errReleased = fmt.Errorf("%w: the workspace has been released", sandbox.ErrUnavailable)
)

// New returns an engine, and starts to look for leftovers of dead processes. It succeeds even if no engine answers at
// the address, because the engine may start later; Probe checks that.
func New(cfg Config) (*Engine, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	api, err := client.New(client.WithHost(cfg.Host))
	if err != nil {
		return nil, fmt.Errorf("docker: the address %q: %w", cfg.Host, err)
	}
	e := &Engine{cfg: cfg, api: api, done: make(chan struct{}), slots: map[string]*slot{}}
	e.ctx, e.stop = context.WithCancelCause(context.Background())
	go e.maintain()
	return e, nil
}

// Name returns "docker".
func (e *Engine) Name() string { return "docker" }

// Down returns nil if the engine answered the last check, at most ten seconds ago. Otherwise it returns why not.
func (e *Engine) Down() error {
	if why := e.down.Load(); why != nil {
		return *why
	}
	return nil
}

// Stats has the containers of an engine.
type Stats struct {
	Running         int64 // containers
	Started, Failed int64 // starts that succeeded and that failed
	Down            bool  // the engine did not answer the last check
}

// Stats returns the counts.
func (e *Engine) Stats() Stats {
	return Stats{e.running.Load(), e.started.Load(), e.failed.Load(), e.Down() != nil}
}

// Run runs a command in the container of the workspace. Commands of one workspace run one at a time; Run waits for its
// turn. An exit code of 128 plus a signal number is reported as that signal. The engine sets HOME if c.Env does not.
func (e *Engine) Run(ctx context.Context, w sandbox.Workspace, c sandbox.Command) (sandbox.Exit, error) {
	if c.Stdin != nil {
		defer c.Stdin.Close()
	}
	if err := check(w, c); err != nil {
		return sandbox.Exit{}, err
	}
	r, err := e.enter(w)
	if err != nil {
		return sandbox.Exit{}, err
	}
	defer e.leave(r)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.ctx, func() { cancel(context.Cause(r.ctx)) })()
	if err := r.acquire(ctx); err != nil {
		return sandbox.Exit{}, err
	}
	defer r.release()
	defer func() { r.used = time.Now() }()
	return e.runIn(ctx, r, w, c)
}

// check rejects commands and workspaces that containers do not support.
func check(w sandbox.Workspace, c sandbox.Command) error {
	switch {
	case c.Elevated:
		return sandbox.ErrNotElevated
	case w.ID == "" || !filepath.IsAbs(w.Dir):
		return errors.New("docker: a workspace needs an id and an absolute path")
	case w.UID <= 0 || w.GID <= 0:
		return fmt.Errorf("docker: the workspace is owned by root (%d:%d), but containers do not run as root; "+
			"change its owner", w.UID, w.GID)
	case len(c.Args) == 0 || c.Args[0] == "":
		return sandbox.ErrNoProgram
	case c.Dir != "" && !filepath.IsLocal(c.Dir):
		return fmt.Errorf("docker: the folder %q is not below the workspace", c.Dir)
	}
	// A symbolic link must not lead to a folder of the engine itself: the program would start there.
	root, err := os.OpenRoot(w.Dir)
	if err != nil {
		return fmt.Errorf("docker: the workspace: %w", err)
	}
	defer root.Close()
	info, err := root.Stat(filepath.Clean(c.Dir))
	if err != nil {
		return fmt.Errorf("docker: the folder of the command: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("docker: %q is not a folder", c.Dir)
	}
	return nil
}

// runIn runs a command in the container of a slot whose turn the caller holds.
func (e *Engine) runIn(ctx context.Context, r *slot, w sandbox.Workspace, c sandbox.Command) (sandbox.Exit, error) {
	s := e.spec(w, c.Limits)
	warm := r.container != nil
	for {
		if err := e.ensureContainer(ctx, r, s); err != nil {
			return sandbox.Exit{}, endedBy(ctx, err)
		}
		began := time.Now()
		exit, err := r.container.run(ctx, w, c)
		exit.Duration = time.Since(began)
		ended := err == nil || errors.Is(err, sandbox.ErrNoProgram)
		if !ended || r.container.settle(ctx, counts) != nil {
			e.dropContainer(r)
		}
		var fresh *notStartedError
		if warm && errors.As(err, &fresh) && ctx.Err() == nil {
			warm = false // The container ended before the command started: retry once in a new one.
			continue
		}
		if !ended {
			return sandbox.Exit{}, endedBy(ctx, err)
		}
		return exit, err
	}
}

// endedBy returns the cause of ctx if ctx has ended, otherwise err.
func endedBy(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Release ends the running command of a workspace, if any, and removes its container.
func (e *Engine) Release(ctx context.Context, w sandbox.Workspace) error {
	e.mu.Lock()
	r := e.slots[w.ID]
	if r == nil {
		e.mu.Unlock()
		return nil
	}
	delete(e.slots, w.ID) // Later commands get a new slot.
	e.mu.Unlock()
	return e.endAndDrop(ctx, r)
}

// Close ends all commands and removes all containers. It waits for that until ctx ends.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	e.closed = true
	slots := e.slots
	e.slots = map[string]*slot{}
	e.mu.Unlock()
	e.stop(errClosed)
	var wg sync.WaitGroup
	for _, r := range slots {
		wg.Go(func() {
			if err := e.endAndDrop(ctx, r); err != nil {
				e.cfg.Log.Warn("container not removed; it ends by itself", "workspace", r.id, "error", err)
			}
		})
	}
	wg.Wait()
	e.removeLost()
	defer e.api.Close()
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Defaults of Config.
const (
	DefaultHost      = "unix:///var/run/docker.sock"
	DefaultImage     = "debian:stable-slim"
	DefaultIdle      = 10 * time.Minute
	DefaultLife      = 6 * time.Hour
	DefaultMemory    = 512 << 20
	DefaultProcesses = 128
	DefaultCPUs      = 1.0
	DefaultTmp       = 64 << 20
	DefaultMaxIdle   = 16

	idleMemoryShare = 8 // divisor of Memory for the default of MaxIdleMemory
)

// Config configures an Engine.
type Config struct {
	// Host is the address of the engine: unix:///path, or tcp://host:port. Default: DefaultHost. The engine must see
	// workspaces at the same paths as this process.
	Host string

	// Image is the image of the containers. It needs /bin/sh, sleep, and all programs that commands use. Default:
	// DefaultImage.
	Image string

	// Pull lets the engine pull a missing image: at the start, or when a command needs it, within the command's
	// timeout. Without Pull, a missing image is an error.
	Pull bool

	// Pod names this process in the labels of its containers, for operators. Required.
	Pod string

	// Idle is how long an unused container is kept. Default: DefaultIdle.
	Idle time.Duration

	// MaxIdle is the maximum number of idle containers, at most half of them for one tenant. Above it, the least
	// recently used container of the tenant with the most is removed. MaxIdleMemory is the maximum memory of an idle
	// container in bytes, without the file cache. Defaults: DefaultMaxIdle, and an eighth of Memory.
	MaxIdle       int
	MaxIdleMemory int64

	// Life is the maximum lifetime of a container, even with a command in it. It matters when this process and the
	// engine die together, because nothing else would end the container then. After half of Life, the next command gets
	// a new container. Default: DefaultLife.
	Life time.Duration

	// Memory, Processes and CPUs limit a container. Limits of a command only apply if they are narrower. Memory is in
	// bytes and includes /tmp. CPUs is the number of CPUs that may be busy. Defaults: DefaultMemory, DefaultProcesses,
	// DefaultCPUs.
	Memory    int64
	Processes int
	CPUs      float64

	// Tmp is the size of /tmp and of /dev/shm, each, in bytes. Default: DefaultTmp, at most a quarter of Memory.
	Tmp int64

	Log *slog.Logger // default: slog.Default
}

// complete validates the configuration and fills in defaults.
func (c Config) complete() (Config, error) {
	if c.Pod == "" {
		return c, errors.New("docker: Config.Pod is required")
	}
	c.Host = cmp.Or(c.Host, DefaultHost)
	c.Image = cmp.Or(c.Image, DefaultImage)
	c.Idle = cmp.Or(c.Idle, DefaultIdle)
	c.Life = cmp.Or(c.Life, DefaultLife)
	c.Memory = cmp.Or(c.Memory, DefaultMemory)
	c.Processes = cmp.Or(c.Processes, DefaultProcesses)
	c.CPUs = cmp.Or(c.CPUs, DefaultCPUs)
	c.MaxIdle = cmp.Or(c.MaxIdle, DefaultMaxIdle)
	c.MaxIdleMemory = cmp.Or(c.MaxIdleMemory, c.Memory/idleMemoryShare)
	c.Tmp = min(cmp.Or(c.Tmp, DefaultTmp), c.Memory/4)
	c.Log = cmp.Or(c.Log, slog.Default())
	if c.Idle < 0 || c.Life < time.Second || c.Memory < 0 || c.Processes < 0 || c.CPUs < 0 || c.Tmp < 0 ||
		c.MaxIdle < 0 || c.MaxIdleMemory < 0 {
		return c, errors.New("docker: limits of Config must be positive, and Life at least 1s")
	}
	return c, nil
}

// Package docker is the engine of the sandbox that runs programs in containers, through the API of Docker or of an
// engine that speaks it.
//
// A workspace has one container, made by its first command and used by those that follow. It has no network, a
// read-only root, no capabilities, and of the host only the folder of the workspace. Its first process, the holder,
// does nothing but read its standard input, which is a connection of this process: when the connection ends, however
// this process died, the holder ends, and with it everything in the container, which the engine then removes.
//
// No engine can kill what an exec left behind. So the holder counts the processes after each command, and a container
// with one too many is removed. docs/decisions/0039-containers.md says why.
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

// Engine runs programs in containers. Make one with New, and end it with Close.
type Engine struct {
	cfg  Config
	api  *client.Client
	stop context.CancelCauseFunc // ends ctx
	ctx  context.Context         // of everything that the engine does
	done chan struct{}           // closed when the keeper has ended
	down atomic.Pointer[error]   // why it does not answer; nil: it does

	mu     sync.Mutex
	closed bool
	rooms  map[string]*room // by the id of the workspace
	lost   []*box           // that the engine would not remove
}

var _ sandbox.Engine = (*Engine)(nil)

var (
	errClosed   = fmt.Errorf("%w: it has been closed", sandbox.ErrUnavailable)
	errReleased = fmt.Errorf("%w: the workspace has been released", sandbox.ErrUnavailable)
)

// New returns an engine, which looks for leftovers of dead processes at once. It does not fail when nothing answers at
// the address: the engine may come later. Probe tells.
func New(cfg Config) (*Engine, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	api, err := client.New(client.WithHost(cfg.Host))
	if err != nil {
		return nil, fmt.Errorf("docker: the address %q: %w", cfg.Host, err)
	}
	e := &Engine{cfg: cfg, api: api, done: make(chan struct{}), rooms: map[string]*room{}}
	e.ctx, e.stop = context.WithCancelCause(context.Background())
	go e.keep()
	return e, nil
}

// Name returns docker.
func (e *Engine) Name() string { return "docker" }

// Down returns why the engine did not answer when it was asked last, at most ten seconds ago; nil: it did.
func (e *Engine) Down() error {
	if why := e.down.Load(); why != nil {
		return *why
	}
	return nil
}

// Run runs a command in the container of the workspace, and waits while another one runs there. A program that exits
// with 128 and the number of a signal is taken for one that the signal ended. The program also knows HOME, which the
// engine sets if c.Env does not.
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
	if err := r.take(ctx); err != nil {
		return sandbox.Exit{}, err
	}
	defer r.give()
	defer func() { r.used = time.Now() }()
	return e.runIn(ctx, r, w, c)
}

// check refuses what no container may run.
func check(w sandbox.Workspace, c sandbox.Command) error {
	switch {
	case c.Elevated:
		return sandbox.ErrNotElevated
	case w.ID == "" || !filepath.IsAbs(w.Dir):
		return errors.New("docker: a workspace has an id and an absolute path")
	case w.UID <= 0 || w.GID <= 0:
		return fmt.Errorf("docker: the workspace is owned by %d:%d, and nothing runs as root in a container; "+
			"let another user own it", w.UID, w.GID)
	case len(c.Args) == 0 || c.Args[0] == "":
		return sandbox.ErrNoProgram
	case c.Dir != "" && !filepath.IsLocal(c.Dir):
		return fmt.Errorf("docker: the folder %q is not below the workspace", c.Dir)
	}
	// A link may not name a folder of the engine itself: a program would start there.
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

// runIn runs a command in the container of a room that is this call's alone.
func (e *Engine) runIn(ctx context.Context, r *room, w sandbox.Workspace, c sandbox.Command) (sandbox.Exit, error) {
	s := e.spec(w, c.Limits)
	warm := r.box != nil
	for {
		if err := e.furnish(ctx, r, s); err != nil {
			return sandbox.Exit{}, endedBy(ctx, err)
		}
		began := time.Now()
		exit, err := r.box.run(ctx, w, c)
		exit.Duration = time.Since(began)
		ended := err == nil || errors.Is(err, sandbox.ErrNoProgram)
		if !ended || r.box.settle(ctx, counts) != nil {
			e.empty(r)
		}
		var fresh *notStartedError
		if warm && errors.As(err, &fresh) && ctx.Err() == nil {
			warm = false // The container was gone before the command could start: the next one is new.
			continue
		}
		if !ended {
			return sandbox.Exit{}, endedBy(ctx, err)
		}
		return exit, err
	}
}

// endedBy returns the cause of ctx if it has ended, else err.
func endedBy(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Release ends the command that runs in the workspace, if any, and removes its container.
func (e *Engine) Release(ctx context.Context, w sandbox.Workspace) error {
	e.mu.Lock()
	r := e.rooms[w.ID]
	if r == nil {
		e.mu.Unlock()
		return nil
	}
	delete(e.rooms, w.ID) // Later commands get a room of their own.
	e.mu.Unlock()
	return e.clear(ctx, r)
}

// Close ends all commands, removes all containers, and waits for it until ctx ends.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	e.closed = true
	rooms := e.rooms
	e.rooms = map[string]*room{}
	e.mu.Unlock()
	e.stop(errClosed)
	var wg sync.WaitGroup
	for _, r := range rooms {
		wg.Go(func() {
			if err := e.clear(ctx, r); err != nil {
				e.cfg.Log.Warn("a container was left to end by itself", "workspace", r.id, "error", err)
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
	DefaultKept      = 16

	keptShare = 8 // the part of Memory that KeptMemory is by default
)

// Config says which engine is used, and for what.
type Config struct {
	// Host is the address of the engine: unix:///path, or tcp://host:port. Default: DefaultHost. The engine has to see
	// workspaces at the paths at which this process sees them.
	Host string

	// Image is what containers are made of. It needs /bin/sh, and whatever commands are to find. Default: DefaultImage.
	Image string

	// Pull lets the engine pull an image that is not there: at the start, or when a command needs it within its own
	// time. Without it a missing image is an error.
	Pull bool

	// Pod names this process in the labels of its containers, for people who look at them. Required.
	Pod string

	// Idle is how long a container stays without a command. Default: DefaultIdle.
	Idle time.Duration

	// Kept is how many containers stay without a command, half of them of one tenant: the one used least recently goes,
	// of the tenant that has most. KeptMemory is how many bytes one that stays may take, without the cache of files.
	// Defaults: DefaultKept, and an eighth of Memory.
	Kept       int
	KeptMemory int64

	// Life is after how long a container ends by itself, whatever runs in it. That is for when this process and the
	// engine die together: nobody would end it then. The first command after half of it has a new one.
	// Default: DefaultLife.
	Life time.Duration

	// Memory, Processes and CPUs bound a container. Limits of a command are narrower or do not count. Memory is in
	// bytes, with what is in /tmp; CPUs is how many may be busy.
	// Defaults: DefaultMemory, DefaultProcesses, DefaultCPUs.
	Memory    int64
	Processes int
	CPUs      float64

	// Tmp is the size of /tmp and of /dev/shm each, in bytes. Default: DefaultTmp, and at most a quarter of Memory.
	Tmp int64

	Log *slog.Logger // default: slog.Default
}

// complete returns the configuration with its defaults.
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
	c.Kept = cmp.Or(c.Kept, DefaultKept)
	c.KeptMemory = cmp.Or(c.KeptMemory, c.Memory/keptShare)
	c.Tmp = min(cmp.Or(c.Tmp, DefaultTmp), c.Memory/4)
	c.Log = cmp.Or(c.Log, slog.Default())
	if c.Idle < 0 || c.Life < time.Second || c.Memory < 0 || c.Processes < 0 || c.CPUs < 0 || c.Tmp < 0 ||
		c.Kept < 0 || c.KeptMemory < 0 {
		return c, errors.New("docker: bounds of Config are above zero, and Life is a second at least")
	}
	return c, nil
}

package docker

import (
	"context"
	"errors"
	"fmt"
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

package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/farhand/farhand/agent/sandbox"
)

// killTimeout is how long a supervisor may take to end its command. Processes in uninterruptible sleep, such as those
// that wait for a dead disk, take longer.
const killTimeout = 10 * time.Second

// Engine runs programs on this machine. Make one with New.
type Engine struct {
	config Config
	pool   pool

	closing context.Context // ends when the engine closes
	close   context.CancelCauseFunc
	mu      sync.Mutex
	running sync.WaitGroup // calls of Run; with mu, none is added once closing has ended
}

// New returns an engine. It makes this process unreadable for other processes of the same user (PR_SET_DUMPABLE), so
// that no program finds the gateway's secrets in /proc. That user then cannot debug it or get a core dump of it either.
// New fails with sandbox.ErrUnavailable if this machine does not support the configuration.
func New(c Config) (*Engine, error) {
	if err := c.Program.check(); err != nil {
		return nil, err
	}
	if c.Landlock {
		if err := Probe(); err != nil {
			return nil, err
		}
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("%w: PR_SET_DUMPABLE: %w", sandbox.ErrUnavailable, err)
	}
	e := &Engine{config: c.withDefaults()}
	e.pool.idle, e.pool.timeout = e.config.Idle, e.config.IdleTimeout
	e.closing, e.close = context.WithCancelCause(context.Background())
	return e, nil
}

// Name returns NameLandlock or Name.
func (e *Engine) Name() string {
	if e.config.Landlock {
		return NameLandlock
	}
	return Name
}

// Run runs a command as sandbox.Engine specifies. Elevated programs run as the gateway's own user; with Landlock they
// are rejected. On amd64 and arm64, no program can signal the gateway or its supervisor. A program that exceeds its
// memory or process limit is killed.
func (e *Engine) Run(ctx context.Context, w sandbox.Workspace, c sandbox.Command) (sandbox.Exit, error) {
	if c.Stdin != nil {
		defer c.Stdin.Close()
	}
	if err := e.begin(); err != nil {
		return sandbox.Exit{}, err
	}
	defer e.running.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(e.closing, func() { cancel(context.Cause(e.closing)) })()

	r, err := e.request(w, c)
	if err != nil {
		return sandbox.Exit{}, err
	}
	if err := context.Cause(ctx); err != nil {
		return sandbox.Exit{}, err
	}
	files, err := openFolders(w, c.Dir)
	if err != nil {
		return sandbox.Exit{}, err
	}
	defer closeAll(files)
	out, err := startOutput(c.Stdout, c.Stderr, cancel)
	if err != nil {
		return sandbox.Exit{}, fmt.Errorf("%w: %w", sandbox.ErrUnavailable, err)
	}
	if r.Drop { // so that the program can open /dev/stdout
		for _, f := range out.writers {
			f.Chown(r.UID, r.GID)
		}
	}
	start := time.Now()
	passed := append(files, out.writers...)
	if c.Stdin != nil {
		r.Stdin, passed = true, append(passed, c.Stdin)
	}
	a, err := e.supervised(ctx, r, passed)
	out.finish(err)
	if cause := context.Cause(ctx); cause != nil && err == nil {
		err = cause
	}
	exit := sandbox.Exit{Code: a.Code, Signal: a.Signal, Duration: time.Since(start)}
	switch {
	case err != nil:
		return exit, err
	case a.NoProgram:
		return exit, fmt.Errorf("%w: %s", sandbox.ErrNoProgram, a.Error)
	case a.Error != "":
		return exit, fmt.Errorf("%w: %s", sandbox.ErrUnavailable, a.Error)
	}
	return exit, nil
}

// begin counts a call of Run. It fails if the engine is closing.
func (e *Engine) begin() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := context.Cause(e.closing); err != nil {
		return err
	}
	e.running.Add(1)
	return nil
}

// request returns the request to the supervisor.
func (e *Engine) request(w sandbox.Workspace, c sandbox.Command) (request, error) {
	r := request{
		Args: c.Args, Env: c.Env, Workspace: w.Dir, Landlock: e.config.Landlock, Gateway: os.Getpid(),
		UID: w.UID, GID: w.GID,
		Memory: c.Limits.Memory, Processes: c.Limits.Processes, CPU: c.Limits.CPU, FileSize: c.Limits.FileSize,
	}
	root := os.Geteuid() == 0
	switch {
	case len(c.Args) == 0 || c.Args[0] == "":
		return r, fmt.Errorf("%w: the command is empty", sandbox.ErrNoProgram)
	case c.Elevated && e.config.Landlock:
		return r, sandbox.ErrNotElevated
	case c.Elevated:
	case root && w.UID == 0:
		return r, fmt.Errorf("%w: root owns the workspace; change its owner to another user", sandbox.ErrUnavailable)
	case root:
		r.Drop = true
	case w.UID != os.Geteuid():
		return r, fmt.Errorf("%w: user %d owns the workspace, and only root can run programs as that user",
			sandbox.ErrUnavailable, w.UID)
	}
	return r, nil
}

// openFolders opens the working directory of a command and its workspace, in the order of fdDir and fdWorkspace.
func openFolders(w sandbox.Workspace, dir string) ([]*os.File, error) {
	workspace, err := os.OpenFile(w.Dir, unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: the workspace: %w", sandbox.ErrUnavailable, err)
	}
	if dir == "" {
		return []*os.File{workspace, workspace}, nil
	}
	root, err := os.OpenRoot(w.Dir)
	if err != nil {
		workspace.Close()
		return nil, fmt.Errorf("%w: the workspace: %w", sandbox.ErrUnavailable, err)
	}
	defer root.Close()
	f, err := root.OpenFile(filepath.FromSlash(dir), unix.O_DIRECTORY, 0)
	if err != nil {
		workspace.Close()
		return nil, fmt.Errorf("the working directory is not in the workspace: %w", err)
	}
	return []*os.File{f, workspace}, nil
}

// supervised runs a command under a supervisor. When ctx ends, it returns after the supervisor has killed all
// processes, or after killTimeout.
func (e *Engine) supervised(ctx context.Context, r request, files []*os.File) (answer, error) {
	message, err := frame(r)
	if err != nil {
		return answer{}, err
	}
	s, err := e.pool.acquire(r.Workspace, message, files)
	if err != nil {
		return answer{}, fmt.Errorf("%w: %w", sandbox.ErrUnavailable, err)
	}
	closeAll(files[fdStdout:]) // only the supervisor holds the ends of the output now
	stop := context.AfterFunc(ctx, func() { s.cancel(killTimeout) })
	var a answer
	err = readFrame(s.socket, &a)
	if stop() && err == nil {
		e.pool.release(s)
		return a, nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		e.pool.abandon(s)
		return a, errors.Join(context.Cause(ctx), errors.New("processes of the command not killed"))
	}
	s.end()
	if err != nil {
		err = fmt.Errorf("%w: its supervisor was killed while the command ran: %w", sandbox.ErrUnavailable, err)
	}
	return a, err
}

// Release ends the idle supervisors of a workspace. They remove its temporary folder.
func (e *Engine) Release(_ context.Context, w sandbox.Workspace) error {
	e.pool.drop(w.Dir)
	return nil
}

// Close ends all commands and supervisors. It waits for their end until ctx ends.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	e.close(fmt.Errorf("%w: it is closed", sandbox.ErrUnavailable))
	e.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.running.Wait()
		e.pool.close()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

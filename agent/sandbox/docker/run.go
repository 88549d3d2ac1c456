package docker

import (
	"context"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/farhand/farhand/agent/sandbox"
)

// maxWait is the maximum delay before the end of a command is noticed that had closed its output earlier.
const maxWait = 250 * time.Millisecond

// notStartedError is the error of a command that the engine did not accept, so it certainly did not run.
type notStartedError struct{ err error }

func (e *notStartedError) Error() string { return e.err.Error() }
func (e *notStartedError) Unwrap() error { return e.err }

// run runs a command until it ends. Processes that it started may still run; if ctx ends, so may the command itself.
func (b *runningContainer) run(ctx context.Context, w sandbox.Workspace, c sandbox.Command) (sandbox.Exit, error) {
	made, err := b.api.ExecCreate(ctx, b.id, client.ExecCreateOptions{
		User: b.spec.user(), AttachStdin: c.Stdin != nil, AttachStdout: true, AttachStderr: true, Cmd: c.Args,
		Env: b.env(c.Env), WorkingDir: path.Join(sandbox.Mount, filepath.ToSlash(c.Dir)),
	})
	if err != nil {
		return sandbox.Exit{}, &notStartedError{unavailable("run a command", err)}
	}
	stream, err := b.api.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return sandbox.Exit{}, unavailable("run a command", err)
	}
	stop := context.AfterFunc(ctx, stream.Close)
	if c.Stdin != nil {
		var feeding sync.WaitGroup
		feeding.Go(func() {
			_, _ = io.Copy(stream.Conn, c.Stdin)
			_ = stream.CloseWrite()
		})
		defer feeding.Wait()
		defer c.Stdin.Close()
	}
	out := &startWriter{to: c.Stdout}
	in := &source{from: stream.Reader}
	_, err = stdcopy.StdCopy(out, c.Stderr, in)
	stop()
	stream.Close()
	if ctx.Err() != nil {
		return sandbox.Exit{}, context.Cause(ctx)
	}
	if in.err != nil {
		return sandbox.Exit{}, unavailable("read the output of the command", in.err)
	}
	if err != nil {
		return sandbox.Exit{}, fmt.Errorf("docker: the output of the command: %w", err)
	}
	return b.exit(ctx, made.ID, out)
}

// source distinguishes read errors of the engine from errors of the writer.
type source struct {
	from io.Reader
	err  error // other than io.EOF
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// env returns the environment of a command. A name without "=" removes a variable that the image sets.
func (b *runningContainer) env(env []string) []string {
	given := map[string]bool{}
	for _, v := range env {
		key, _, _ := strings.Cut(v, "=")
		given[key] = true
	}
	all := env[:len(env):len(env)]
	for _, key := range b.unset {
		if !given[key] {
			all = append(all, key)
		}
	}
	return all
}

// exit waits for the end of a command whose output has ended. Usually the command has ended by then, but a program may
// close its output earlier.
func (b *runningContainer) exit(ctx context.Context, id string, out *startWriter) (sandbox.Exit, error) {
	for wait := time.Millisecond; ; wait = min(2*wait, maxWait) {
		e, err := b.api.ExecInspect(ctx, id, client.ExecInspectOptions{})
		switch {
		case err != nil:
			return sandbox.Exit{}, unavailable("read the exit code of the command", err)
		case !e.Running && e.PID == 0:
			return sandbox.Exit{}, out.startError()
		case !e.Running:
			return exitOf(e.ExitCode), out.pass()
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return sandbox.Exit{}, context.Cause(ctx)
		}
	}
}

// exitOf converts an exit code to an Exit.
func exitOf(code int) sandbox.Exit {
	e := sandbox.Exit{Code: code}
	if s := syscall.Signal(code - 128); s > 0 && s < 65 {
		e.Signal = s.String()
	}
	return e
}

const probeTimeout = 10 * time.Second

// Probe returns nil if containers can be used. Otherwise the error wraps sandbox.ErrUnavailable and tells operators
// why. It creates no container.
func Probe(ctx context.Context, cfg Config) error {
	cfg, err := cfg.complete()
	if err != nil {
		return err
	}
	api, err := client.New(client.WithHost(cfg.Host))
	if err != nil {
		return unavailable("the address "+cfg.Host, err)
	}
	defer api.Close()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if err := usable(ctx, api, cfg.Host); err != nil {
		return err
	}
	if _, err = findImage(ctx, api, cfg.Image); isMissing(err) && cfg.Pull {
		return nil // The first command pulls it.
	}
	return err
}

// usable returns why the engine at this address cannot confine programs, or nil. Engines drop limits that they do not
// support, with only a warning. Here every limit is required.
func usable(ctx context.Context, api *client.Client, host string) error {
	answer, err := api.Info(ctx, client.InfoOptions{})
	switch {
	case err != nil && strings.Contains(err.Error(), "permission denied"): // The client only keeps the text.
		return fmt.Errorf("%w: no permission to use %s; run as a user in the group docker: %w",
			sandbox.ErrUnavailable, host, err)
	case err != nil:
		return fmt.Errorf("%w: no engine at %s; start one, or set its address: %w",
			sandbox.ErrUnavailable, host, err)
	}
	if lack := missingFeature(answer.Info); lack != "" {
		return fmt.Errorf("%w: the engine at %s %s", sandbox.ErrUnavailable, host, lack)
	}
	return nil
}

// missingFeature returns which required feature the engine lacks, or "".
func missingFeature(info system.Info) string {
	hasOption := func(option string) bool { // as in name=seccomp,profile=default
		return slices.ContainsFunc(info.SecurityOptions, func(o string) bool {
			return slices.Contains(strings.Split(o, ","), option)
		})
	}
	switch {
	case info.OSType != "linux":
		return "runs " + info.OSType + " containers, not linux"
	case !info.MemoryLimit:
		return "cannot limit memory; enable the memory controller of cgroups"
	case !info.PidsLimit:
		return "cannot limit processes; enable the pids controller of cgroups"
	case !info.CPUCfsQuota:
		return "cannot limit CPUs; enable the cpu controller of cgroups"
	case !hasOption("name=seccomp"):
		return "has no seccomp; enable it with its default profile"
	case hasOption("profile=unconfined"):
		return "runs programs unconfined (seccomp); enable its default profile"
	case hasOption("name=rootless"), hasOption("name=userns"):
		return "maps user ids, so programs could not write to their workspaces; use an engine without user namespaces"
	}
	return ""
}

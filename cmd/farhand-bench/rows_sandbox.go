package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/sandbox/docker"
	"github.com/farhand/farhand/agent/sandbox/docker/dockertest"
	"github.com/farhand/farhand/cmd/farhand/bench"
)

const (
	sandboxCost = 1.2   // maximum of a command in a warm container, relative to `docker exec`
	sandboxUser = 12345 // owns the workspace
)

// rowSandbox measures an empty program in a running container, compared with `docker exec` of the same program in the
// same container. The two alternate.
func rowSandbox(ctx context.Context, l *lab) ([]verdict, error) {
	const what, target = "true in a warm container: p50", "≤ 1.2 × docker exec"
	_, err := exec.LookPath("docker")
	if err == nil {
		err = dockertest.Available()
	}
	if err != nil {
		return []verdict{{What: what, Target: target, Measured: "left out", Met: true, Detail: err.Error()}}, nil
	}
	host, err := dockertest.Start()
	if err != nil {
		return nil, err
	}
	defer host.Stop()
	dir, err := os.MkdirTemp("", "farhand-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	w := sandbox.Workspace{ID: "bench", Dir: dir, UID: sandboxUser, GID: sandboxUser}
	engine, err := docker.New(docker.Config{Host: host.Host(), Image: dockertest.Image, Pod: "bench"})
	if err != nil {
		return nil, err
	}
	defer engine.Close(context.WithoutCancel(ctx))
	var ours, theirs bench.Histogram
	run := func() error {
		_, err := engine.Run(ctx, w, sandbox.Command{
			Args: []string{"true"}, Env: []string{"PATH=/bin"}, Stdout: io.Discard, Stderr: io.Discard,
		})
		return err
	}
	began := time.Now()
	if err := run(); err != nil {
		return nil, err
	}
	cold := time.Since(began)
	name, err := exec.CommandContext(ctx, "docker", "--host", host.Host(), "ps", "--quiet").Output()
	if err != nil {
		return nil, err
	}
	for range quickOr(l.options, 5, 40*l.Repeat) {
		cli := exec.CommandContext(ctx, "docker", "--host", host.Host(), "exec",
			"--user", fmt.Sprintf("%d:%d", w.UID, w.GID), string(bytes.TrimSpace(name)), "true")
		if err := timed(&theirs, cli.Run); err != nil {
			return nil, err
		}
		if err := timed(&ours, run); err != nil {
			return nil, err
		}
	}
	v := atMost(what, micros(ours.Quantile(.5)), micros(theirs.Quantile(.5)), sandboxCost, "µs", "docker exec")
	v.Detail = fmt.Sprintf("p99 %s against %s; the first command, with a new container: %s",
		bench.Short(ours.Quantile(.99)), bench.Short(theirs.Quantile(.99)), bench.Short(cold))
	return []verdict{v}, nil
}

// timed records how long f takes.
func timed(h *bench.Histogram, f func() error) error {
	began := time.Now()
	err := f()
	h.Record(time.Since(began))
	return err
}

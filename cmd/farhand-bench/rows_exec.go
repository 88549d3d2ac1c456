package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/sandbox/host"
	"github.com/farhand/farhand/cmd/farhand/bench"
)

// execCost is the maximum cost of a program on the host, relative to os/exec.
const execCost = 1.5

// rowExec measures an empty program on the host with limits, compared with os/exec. The two alternate.
func rowExec(ctx context.Context, l *lab) ([]verdict, error) {
	dir, err := os.MkdirTemp("", "farhand-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	w := sandbox.Workspace{ID: "bench", Dir: dir, UID: os.Geteuid(), GID: os.Getegid()}
	if w.UID == 0 {
		w.UID, w.GID = sandboxUser, sandboxUser
		if err := os.Chown(dir, w.UID, w.GID); err != nil {
			return nil, err
		}
	}
	engine, err := host.New(host.Config{Program: l.Self})
	if err != nil {
		return nil, err
	}
	defer engine.Close(context.WithoutCancel(ctx))
	program, err := exec.LookPath("true")
	if err != nil {
		return nil, err
	}
	limits := sandbox.Limits{Memory: 1 << 30, Processes: 64, CPU: time.Minute, FileSize: 1 << 30}
	run := func() error {
		var stdout, stderr bytes.Buffer
		_, err := engine.Run(ctx, w, sandbox.Command{
			Args: []string{program}, Stdout: &stdout, Stderr: &stderr, Limits: limits,
		})
		return err
	}
	if err := run(); err != nil { // starts a supervisor
		return nil, err
	}
	var ours, theirs bench.Histogram
	for range quickOr(l.options, 20, 400*l.Repeat) {
		var stdout, stderr bytes.Buffer
		bare := exec.CommandContext(ctx, program)
		bare.Stdout, bare.Stderr = &stdout, &stderr
		if err := timed(&theirs, bare.Run); err != nil {
			return nil, err
		}
		if err := timed(&ours, run); err != nil {
			return nil, err
		}
	}
	us, them := micros(ours.Quantile(.5)), micros(theirs.Quantile(.5))
	v := atMost("true on the host: p50", us, them, execCost, "µs", "os/exec")
	v.Detail = fmt.Sprintf("p99 %s against %s", bench.Short(ours.Quantile(.99)), bench.Short(theirs.Quantile(.99)))
	return []verdict{v}, nil
}

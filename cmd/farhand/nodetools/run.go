package nodetools

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/procgroup"
)

const (
	maxOutput = 64 << 10 // bytes kept of each stream
	endWait   = time.Second
)

// Ran is the result of the tool run.
type Ran struct {
	ExitCode int    `json:"exit_code"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	Cut      bool   `json:"cut"` // output beyond the limit was dropped
	Millis   int64  `json:"duration_ms"`
}

// runCommand runs a command of the system's shell as Run does.
func runCommand(ctx context.Context, command string) (any, error) {
	if runtime.GOOS == "windows" {
		return Run(ctx, exec.CommandContext(ctx, "cmd", "/c", command))
	}
	return Run(ctx, exec.CommandContext(ctx, "sh", "-c", command))
}

// Run runs a command, whose context is ctx, until it or ctx ends. It keeps the first 64 KiB of each of its streams.
// Processes that it started end with it, unless they have left its process group.
func Run(ctx context.Context, cmd *exec.Cmd) (any, error) {
	var stdout, stderr head
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &stdout, &stderr, endWait
	began := time.Now()
	group, err := procgroup.Start(cmd)
	if err != nil {
		return nil, err
	}
	err = group.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	return Ran{
		ExitCode: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String(),
		Cut: stdout.cut || stderr.cut, Millis: time.Since(began).Milliseconds(),
	}, nil
}

// head keeps the first bytes that are written to it.
type head struct {
	mu  sync.Mutex
	buf bytes.Buffer
	cut bool
}

// Write implements io.Writer.
func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	room := min(maxOutput-h.buf.Len(), len(p))
	h.cut = h.cut || room < len(p)
	h.buf.Write(p[:room])
	return len(p), nil
}

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.buf.String()
}

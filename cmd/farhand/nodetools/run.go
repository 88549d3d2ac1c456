package nodetools

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/procgroup"
)

const (
	maxOutput = 64 << 10 // bytes kept of each stream
	endWait   = time.Second
)

// ran is how a command ended.
type ran struct {
	ExitCode int    `json:"exit_code"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	Cut      bool   `json:"cut"` // there was more output than is kept
	Millis   int64  `json:"duration_ms"`
}

// runCommand runs a shell command until it or ctx ends. What it has started, and has not left its process group, ends
// with it.
func runCommand(ctx context.Context, command string) (any, error) {
	var stdout, stderr head
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
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
	return ran{
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

//go:build !linux

package bench

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"time"
)

// ReadProcess returns what a process has used. It asks the program ps, which Windows does not have.
func ReadProcess(ctx context.Context, pid int) (ProcessUse, error) {
	out, err := exec.CommandContext(ctx, "ps", "-o", "rss=", "-o", "time=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ProcessUse{}, err
	}
	var kilobytes int64
	var minutes, seconds float64
	_, err = fmt.Sscanf(string(out), "%d %f:%f", &kilobytes, &minutes, &seconds)
	return ProcessUse{CPU: time.Duration((minutes*60 + seconds) * float64(time.Second)), Resident: kilobytes << 10}, err
}

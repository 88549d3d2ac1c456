package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of times in /proc: USER_HZ is 100 on every Linux.
const tick = 10 * time.Millisecond

// ReadProcess returns what a process has used. It reads /proc.
func ReadProcess(_ context.Context, pid int) (ProcessUse, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ProcessUse{}, err
	}
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return ProcessUse{}, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // what follows the name
	pages := strings.Fields(string(statm))
	if len(fields) < 13 || len(pages) < 2 {
		return ProcessUse{}, errors.New("unknown format of /proc")
	}
	user, errUser := strconv.ParseInt(fields[11], 10, 64)
	system, errSystem := strconv.ParseInt(fields[12], 10, 64)
	resident, errResident := strconv.ParseInt(pages[1], 10, 64)
	return ProcessUse{CPU: time.Duration(user+system) * tick, Resident: resident * int64(os.Getpagesize())},
		errors.Join(errUser, errSystem, errResident)
}

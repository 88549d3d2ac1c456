package docker

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// processLabel says which process of which machine this is, or nothing where that cannot be told: the boot, the
// namespace of process ids, the id, and when it started.
func processLabel() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	pid := os.Getpid()
	return fmt.Sprintf("%s %s %d %s", strings.TrimSpace(string(boot)), space, pid, startOf(pid))
}

// startOf returns when a process started, in ticks since the machine did, or nothing if that is not to be seen.
func startOf(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	name := strings.LastIndexByte(string(stat), ')') // It may have anything in it.
	if fields := strings.Fields(string(stat[name+1:])); len(fields) > 19 {
		return fields[19]
	}
	return ""
}

// isDead reports whether the process with that label is known to have ended. own is the label of this process, which
// knows nothing of other machines and other namespaces.
func isDead(label, own string) bool {
	l, o := strings.Fields(label), strings.Fields(own)
	if len(l) != 4 || len(o) != 4 || l[0] != o[0] || l[1] != o[1] {
		return false
	}
	pid, err := strconv.Atoi(l[2])
	if err != nil || pid <= 0 {
		return false
	}
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	start := startOf(pid)
	return start != "" && start != l[3] // Another process has its number now.
}

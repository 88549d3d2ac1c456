package host

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// softFiles is how many files a process may have open unless it asks for more, and maxFiles the most it gets.
	softFiles, maxFiles = 1024, 4096

	// spareProcesses is how far above its own limit the processes of a command's user may be counted: that user may
	// have others, and new ones. The exact limit is what watch counts.
	spareProcesses = 1024
)

// limit sets the limits of a process that has not run yet, on a thread of its own that becomes the command's user: root
// may do it for another user only with CAP_SYS_RESOURCE, which it seldom has in containers.
func limit(pid int, r request) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if r.Drop {
			// Not the functions of package syscall, which are for all threads.
			_, _, e := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(r.GID), uintptr(r.GID), uintptr(r.GID))
			if e == 0 {
				_, _, e = unix.RawSyscall(unix.SYS_SETRESUID, uintptr(r.UID), uintptr(r.UID), uintptr(r.UID))
			}
			if e != 0 {
				done <- e
				return
			}
		}
		done <- setLimits(pid, r)
	}()
	return <-done
}

func setLimits(pid int, r request) error {
	set := func(resource int, soft, hard uint64) error {
		var now unix.Rlimit
		if err := unix.Prlimit(pid, resource, nil, &now); err != nil {
			return err
		}
		return unix.Prlimit(pid, resource, &unix.Rlimit{Cur: min(soft, now.Max), Max: min(hard, now.Max)}, nil)
	}
	err := errors.Join(set(unix.RLIMIT_CORE, 0, 0), set(unix.RLIMIT_NOFILE, softFiles, maxFiles))
	if n := uint64(r.Memory); r.Memory > 0 { // not RLIMIT_AS: many a runtime reserves addresses that it never uses
		err = errors.Join(err, set(unix.RLIMIT_DATA, n, n))
	}
	if n := uint64(r.FileSize); r.FileSize > 0 {
		err = errors.Join(err, set(unix.RLIMIT_FSIZE, n, n))
	}
	if r.CPU > 0 {
		seconds := uint64((r.CPU + time.Second - 1) / time.Second)
		err = errors.Join(err, set(unix.RLIMIT_CPU, seconds, seconds+1)) // SIGXCPU, then SIGKILL
	}
	if r.Processes > 0 {
		n := uint64(threadsOfMachine() + r.Processes + spareProcesses)
		err = errors.Join(err, set(unix.RLIMIT_NPROC, n, n))
	}
	return err
}

// threadsOfMachine returns how many threads there are, which no user has more of.
func threadsOfMachine() int {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	var load [3]float64
	var running, all int
	fmt.Sscanf(string(data), "%f %f %f %d/%d", &load[0], &load[1], &load[2], &running, &all)
	return all
}

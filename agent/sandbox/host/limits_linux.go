package host

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// softFiles is how many files a process may have open unless it asks for more, and maxFiles the most it gets.
	softFiles, maxFiles = 1024, 4096

	// niceness is how much less of a busy processor programs get than the gateway, and than a supervisor that has to
	// kill more of them than there are processors: see nice(1).
	niceness = 10

	// spareProcesses is how far above its own limit the processes of a command's user may be counted: that user may
	// have others, and new ones. The exact limit is what watch counts.
	spareProcesses = 64
)

// limit sets the limits of a process that has not run yet. This thread becomes its user meanwhile: root may do it for
// another user only with CAP_SYS_RESOURCE, which it seldom has in containers.
func limit(pid int, r request) error {
	if !r.Drop {
		return setLimits(pid, r)
	}
	uid, gid := unix.Geteuid(), unix.Getegid()
	// The functions of package syscall are for all threads.
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(r.GID), uintptr(r.GID), same); e != 0 {
		return e
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(r.UID), uintptr(r.UID), same); e != 0 {
		return e
	}
	err := setLimits(pid, r)
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), same); e != 0 {
		return e
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), same); e != 0 {
		return e
	}
	return err
}

// same leaves an id as it is.
const same = ^uintptr(0)

func setLimits(pid int, r request) error {
	set := func(resource int, soft, hard uint64) error {
		var now unix.Rlimit // of this process, from which pid has it
		if err := unix.Getrlimit(resource, &now); err != nil {
			return err
		}
		return unix.Prlimit(pid, resource, &unix.Rlimit{Cur: min(soft, now.Max), Max: min(hard, now.Max)}, nil)
	}
	err := errors.Join(yield(pid),
		set(unix.RLIMIT_CORE, 0, 0), set(unix.RLIMIT_NOFILE, softFiles, maxFiles))
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

// yield has a process leave a busy processor to others. A gateway that was started with a higher niceness still cannot
// give its programs a lower one.
func yield(pid int) error {
	now, err := unix.Getpriority(unix.PRIO_PROCESS, pid)
	if nice := 20 - now; err != nil || nice >= niceness { // the system call returns 20 less the niceness
		return err
	}
	return unix.Setpriority(unix.PRIO_PROCESS, pid, niceness)
}

// threadsOfMachine returns how many threads there are, which no user has more of.
func threadsOfMachine() int {
	data, err := os.ReadFile("/proc/loadavg") // "0.20 0.18 0.12 1/80 11206"
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(data, []byte("/"))
	number, _, _ := bytes.Cut(rest, []byte(" "))
	n, _ := strconv.Atoi(string(number))
	return n
}

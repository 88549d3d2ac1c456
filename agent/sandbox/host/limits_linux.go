package host

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// softFiles is the default limit of open files per process, and maxFiles the hard limit.
	softFiles, maxFiles = 1024, 4096

	// niceness gives programs less CPU time than the gateway when the CPU is busy, and less than a supervisor that has
	// to kill more of them than there are CPUs. See nice(1).
	niceness = 10

	// spareProcesses is how far RLIMIT_NPROC exceeds the command's own limit: its user may run other processes, also
	// later ones. watch enforces the exact limit.
	spareProcesses = 64
)

// limit sets the limits of a process that has not started its program. This thread switches to the process's user
// meanwhile: root needs CAP_SYS_RESOURCE to do it for another user, and seldom has it in containers.
func limit(pid int, r request) error {
	if !r.Drop {
		return setLimits(pid, r)
	}
	uid, gid := unix.Geteuid(), unix.Getegid()
	// The functions of package syscall change all threads.
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

// same leaves an id unchanged.
const same = ^uintptr(0)

func setLimits(pid int, r request) error {
	set := func(resource int, soft, hard uint64) error {
		var now unix.Rlimit // of this process; pid inherits it
		if err := unix.Getrlimit(resource, &now); err != nil {
			return err
		}
		return unix.Prlimit(pid, resource, &unix.Rlimit{Cur: min(soft, now.Max), Max: min(hard, now.Max)}, nil)
	}
	err := errors.Join(yield(pid),
		set(unix.RLIMIT_CORE, 0, 0), set(unix.RLIMIT_NOFILE, softFiles, maxFiles))
	if n := uint64(r.Memory); r.Memory > 0 { // not RLIMIT_AS: many runtimes reserve addresses that they never use
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

// yield raises the niceness of a process. If the gateway was started with a higher niceness, that value stays: the
// gateway cannot lower it.
func yield(pid int) error {
	now, err := unix.Getpriority(unix.PRIO_PROCESS, pid)
	if nice := 20 - now; err != nil || nice >= niceness { // the system call returns 20 minus the niceness
		return err
	}
	return unix.Setpriority(unix.PRIO_PROCESS, pid, niceness)
}

// threadsOfMachine returns the number of threads of the machine. No user has more.
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

const (
	// firstLook and lastLook bound the interval at which the processes of a command are checked. The interval is short
	// while their number grows, and long when it does not.
	firstLook = 5 * time.Millisecond
	lastLook  = 200 * time.Millisecond

	// firstSweep and lastSweep bound the interval between attempts to kill the remaining processes.
	firstSweep = time.Millisecond
	lastSweep  = 50 * time.Millisecond
)

// tree is a command with all processes that it started. They are the only descendants of this process.
type tree struct {
	starter *starter
	main    int                // how the command ended
	status  syscall.WaitStatus // how it ended
	ended   bool
	empty   bool // no process is left
}

// wait waits until the command ends, the gateway cancels it, or it reaches a limit. It then kills the remaining
// processes.
func (t *tree) wait(r request) answer {
	t.watch(r)
	t.kill()
	a := answer{Code: t.status.ExitStatus()}
	if t.status.Signaled() {
		a.Code, a.Signal = 128+int(t.status.Signal()), t.status.Signal().String()
	}
	return a
}

// watch returns when the command has ended or must end.
func (t *tree) watch(r request) {
	main, err := unix.PidfdOpen(t.main, 0)
	if err != nil { // there is nothing to wait on
		return
	}
	defer unix.Close(main)
	limited := r.Memory > 0 || r.Processes > 0
	pause, processes := firstLook, 0
	for {
		// The gateway writes nothing before it has the answer, so any readable event means cancellation.
		events := []unix.PollFd{
			{Fd: supervisorSocket, Events: unix.POLLIN | unix.POLLRDHUP}, {Fd: int32(main), Events: unix.POLLIN},
		}
		n, err := unix.Poll(events, int(pause.Milliseconds()))
		t.reap()
		if t.ended || events[0].Revents != 0 || err != nil && err != unix.EINTR {
			return
		}
		if n != 0 {
			continue
		}
		if !limited {
			pause = lastLook // for reap
			continue
		}
		before, list := processes, descendants()
		processes = 0
		for _, p := range list {
			processes += p.threads
		}
		if r.Processes > 0 && processes > r.Processes || r.Memory > 0 && memory(list, r.Memory) > r.Memory {
			return
		}
		if pause = min(2*pause, lastLook); processes > before {
			pause = firstLook
		}
	}
}

// reap collects exited processes of the tree, and reports whether there were any.
func (t *tree) reap() bool {
	for found := false; ; found = true {
		var status syscall.WaitStatus
		pid := 0
		err := retry(func() (err error) {
			pid, err = syscall.Wait4(-1, &status, syscall.WNOHANG|syscall.WALL, nil)
			return err
		})
		if err != nil { // ECHILD
			t.empty = true
			return found
		}
		if pid == 0 {
			return found
		}
		if pid == t.main {
			t.status, t.ended = status, true
		}
	}
}

// kill kills until no process is left. The children of a killed process become children of this process. The next sweep
// finds processes that were forked meanwhile. kill sleeps only if a sweep found no new process.
func (t *tree) kill() {
	killed := make(map[process]bool)
	for pause := firstSweep; !t.empty; t.reap() {
		if t.sweep(killed) {
			pause = firstSweep
			continue
		}
		time.Sleep(pause)
		pause = min(2*pause, lastSweep)
	}
}

// sweep kills all current descendants, and reports whether any of them is new. If the starter can, the kernel kills all
// of them atomically. Otherwise sweep races with forking processes, and first kills the command's whole group. Children
// of this process, and their groups, keep their ids until it reaps them.
func (t *tree) sweep(killed map[process]bool) bool {
	if t.starter.kill() {
		return false
	}
	if !t.ended {
		unix.Kill(-t.main, unix.SIGKILL)
	}
	found, self, own := false, unix.Getpid(), unix.Getpgrp()
	for _, p := range descendants() {
		if p.parent == self {
			unix.Kill(p.pid, unix.SIGKILL)
			// Look up the group only after the kill: a dying process joins no other group.
			if group, err := unix.Getpgid(p.pid); err == nil && group != 0 && group != own {
				unix.Kill(-group, unix.SIGKILL)
			}
		} else {
			p.kill()
		}
		id := process{pid: p.pid, parent: p.parent}
		found = found || !killed[id]
		killed[id] = true
	}
	return found
}

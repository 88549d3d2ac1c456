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

const (
	// firstLook and lastLook are how long after the start of a command, and after each other, its processes are looked
	// at: often while they become more, seldom once they do not.
	firstLook = 5 * time.Millisecond
	lastLook  = 200 * time.Millisecond

	// firstSweep and lastSweep are the time between two attempts to kill what is left.
	firstSweep = time.Millisecond
	lastSweep  = 50 * time.Millisecond
)

// tree is a command with everything that it started. All of it are descendants of this process, which runs nothing
// else.
type tree struct {
	starter *starter
	main    int                // the process of the command
	status  syscall.WaitStatus // how it ended
	ended   bool
	empty   bool // nothing is left
}

// wait waits until the command has ended, the gateway wants it to, or a limit is reached, and then kills what is left.
func (t *tree) wait(r request) answer {
	t.watch(r)
	t.kill()
	a := answer{Code: t.status.ExitStatus()}
	if t.status.Signaled() {
		a.Code, a.Signal = 128+int(t.status.Signal()), t.status.Signal().String()
	}
	return a
}

// watch returns when the command has to end, or has.
func (t *tree) watch(r request) {
	main, err := unix.PidfdOpen(t.main, 0)
	if err != nil { // nothing could be waited for
		return
	}
	defer unix.Close(main)
	limited := r.Memory > 0 || r.Processes > 0
	pause, processes := firstLook, 0
	for {
		// The gateway writes nothing before it has the answer: what can be read is the end.
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

// reap takes the ends of processes of the tree, and reports whether there were any.
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

// kill kills until nothing is left. Who is killed leaves its children to this process, and who was forked meanwhile is
// found by the next sweep, which follows at once: only those that were killed before are waited for.
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

// sweep kills all descendants that there are, and reports whether there were any that were not killed before. The
// kernel kills all at once where it can. Else it is a race with those who fork; the first move is the command's whole
// group. Children of this process, and the groups they are in, keep their numbers until it reaps them.
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
			// Asked only now: who is dying joins no other group.
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

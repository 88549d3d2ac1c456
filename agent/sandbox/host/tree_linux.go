package host

import (
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

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
	main int // the process of the command

	// reaping is held while processes are reaped and while they are killed: the numbers of children are not given to
	// others meanwhile.
	reaping sync.Mutex
	status  syscall.WaitStatus // of main

	ended chan struct{} // closed when main has ended
	empty chan struct{} // closed when nothing is left
}

func newTree() *tree { return &tree{ended: make(chan struct{}), empty: make(chan struct{})} }

// wait waits until the command has ended, gone is closed or a limit is reached, and then kills what is left.
func (t *tree) wait(r request, gone <-chan struct{}) answer {
	go t.reap()
	t.watch(r, gone)
	t.kill()
	a := answer{Code: t.status.ExitStatus()}
	if t.status.Signaled() {
		a.Code, a.Signal = 128+int(t.status.Signal()), t.status.Signal().String()
	}
	return a
}

// reap takes the ends of all processes of the tree until there is none.
func (t *tree) reap() {
	defer close(t.empty)
	for {
		// The number of a process that ended stays taken until it is reaped, under the lock.
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil { // ECHILD: no child is left
			return
		}
		t.reapEnded()
	}
}

func (t *tree) reapEnded() {
	t.reaping.Lock()
	defer t.reaping.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid == 0 {
			return
		}
		if pid == t.main {
			t.status = status
			close(t.ended)
		}
	}
}

// watch returns when the command is to end.
func (t *tree) watch(r request, gone <-chan struct{}) {
	pause := firstLook
	timer := time.NewTimer(pause)
	defer timer.Stop()
	if r.Memory <= 0 && r.Processes <= 0 {
		timer.Stop()
	}
	processes := 0
	for {
		select {
		case <-t.ended:
			return
		case <-gone:
			return
		case <-timer.C:
		}
		before := processes
		list := descendants()
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
		timer.Reset(pause)
	}
}

// kill kills until nothing is left. Who is killed leaves its children to this process, and who was forked meanwhile is
// found by the next sweep. After a command that has ended by itself there mostly is nothing, which reap is about to see.
func (t *tree) kill() {
	select {
	case <-t.ended:
	default:
		t.sweep()
	}
	for pause := firstSweep; ; pause = min(2*pause, lastSweep) {
		select {
		case <-t.empty:
			return
		case <-time.After(pause):
			t.sweep()
		}
	}
}

// sweep kills all descendants that there are.
func (t *tree) sweep() {
	t.reaping.Lock()
	defer t.reaping.Unlock()
	select {
	case <-t.ended:
	default:
		unix.Kill(-t.main, unix.SIGKILL) // the whole group at once: none of it gets to fork any more
	}
	self, groups := unix.Getpid(), make(map[int]bool)
	for _, p := range descendants() {
		if p.parent != self {
			p.kill()
			continue
		}
		unix.Kill(p.pid, unix.SIGKILL)
		if p.group != 0 && p.group != unix.Getpgrp() && !groups[p.group] {
			groups[p.group] = true
			unix.Kill(-p.group, unix.SIGKILL)
		}
	}
}

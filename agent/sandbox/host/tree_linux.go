package host

import (
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

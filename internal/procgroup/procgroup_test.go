//go:build linux

package procgroup

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// member is a child of the test in the group of another process. It sends back the lines that it is sent.
type member struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func join(t *testing.T, leader int) *member {
	t.Helper()
	m := &member{cmd: exec.CommandContext(t.Context(), "cat")}
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: leader}
	in, errIn := m.cmd.StdinPipe()
	out, errOut := m.cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut, m.cmd.Start()); err != nil {
		t.Fatal(err)
	}
	m.in, m.out = in, bufio.NewReader(out)
	return m
}

// wantAlive fails the test if the process has been sent a signal that ends it.
func (m *member) wantAlive(t *testing.T) {
	t.Helper()
	_, err := io.WriteString(m.in, "a line\n")
	line, errOut := m.out.ReadString('\n')
	if err != nil || errOut != nil || line != "a line\n" {
		t.Errorf("a process that was not meant has ended: %q, %v, %v", line, err, errOut)
	}
}

// wantKilled waits until the process has ended, by a signal.
func (m *member) wantKilled(t *testing.T) {
	t.Helper()
	_ = m.cmd.Wait()
	if status := m.cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("a process of the group ended with %v", m.cmd.ProcessState)
	}
}

// reaped reports whether a child is gone with its number.
func reaped(pid int) bool {
	return errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil), unix.ECHILD)
}

// start starts a leader that ends with its input.
func start(t *testing.T, cmd *exec.Cmd) (*Group, io.Closer) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	g, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	return g, in
}

// The group is killed while its leader is unreaped, so that its number cannot be another's yet. Whoever has the number
// afterwards is sent nothing.
func TestGroupIsKilledBeforeItsNumberIsGivenAway(t *testing.T) {
	t.Parallel()
	g, in := start(t, exec.Command("cat"))
	leader := g.cmd.Process.Pid
	left := join(t, leader)
	in.Close()
	g.settle()
	left.wantKilled(t)
	if reaped(leader) {
		t.Error("the leader was reaped before its group was killed")
	}
	heir := join(t, leader) // a group with that number
	_ = g.Kill()
	heir.wantAlive(t)
	if err := g.cmd.Wait(); err != nil || !reaped(leader) {
		t.Errorf("the leader: %v", err)
	}
	if err := g.Kill(); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("killing what has ended: %v", err)
	}
	heir.wantAlive(t)
	heir.in.Close()
	if err := heir.cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// Kill and the end of the context kill the group with its leader.
func TestKill(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, c := range map[string]struct {
		cmd *exec.Cmd
		end func(*Group)
	}{
		"kill":    {exec.Command("cat"), func(g *Group) { _ = g.Kill() }},
		"context": {exec.CommandContext(ctx, "cat"), func(*Group) { cancel() }},
	} {
		g, _ := start(t, c.cmd)
		other := join(t, c.cmd.Process.Pid)
		c.end(g)
		if err := g.Wait(); err == nil {
			t.Errorf("%s: the leader ended by itself", name)
		}
		other.wantKilled(t)
	}
}

// Whoever kills while the leader ends by itself neither waits for it nor sends anything too late.
func TestKillRacesWithTheEnd(t *testing.T) {
	t.Parallel()
	for range 50 {
		g, in := start(t, exec.Command("cat"))
		leader := g.cmd.Process.Pid
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { _ = g.Kill() })
		}
		all.Go(func() { in.Close() })
		_ = g.Wait()
		all.Wait()
		if !reaped(leader) {
			t.Error("a leader was not reaped")
		}
	}
}

func TestNoProgram(t *testing.T) {
	if g, err := Start(exec.Command("/no/such/program")); err == nil || g != nil {
		t.Errorf("%v, %v", g, err)
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	for _, pieces := range [][]string{{"abcdef"}, {"ab", "cd", "ef"}, {"abc", "", "def"}, {"x", "zabcdef"}} {
		tail := NewTail(4)
		for _, piece := range pieces {
			if n, err := tail.Write([]byte(piece)); n != len(piece) || err != nil {
				t.Errorf("wrote %d, %v", n, err)
			}
		}
		if got := tail.String(); got != "cdef" {
			t.Errorf("%q kept %q", pieces, got)
		}
	}
	tail := NewTail(2)
	_, _ = tail.Write([]byte("aé\xff"))
	if got := tail.String(); got != "" {
		t.Errorf("half a character is kept: %q", got)
	}
}

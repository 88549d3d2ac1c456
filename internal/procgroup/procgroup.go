// Package procgroup runs a command as the leader of a process group of its own, and ends the whole group with it.
//
// The id of a group is the process id of its leader. The kernel reuses it once the leader has been reaped and the group
// is empty. So the group gets signals only while its leader has not been reaped, even if the leader is only a zombie.
// On Windows, the group is a job object, which the leader's children cannot leave.
package procgroup

import (
	"os/exec"
	"strings"
	"sync"
)

// Group is a command with the processes of the group that it leads. If the system has no such groups, or no way to keep
// an ended process unreaped, it is the command alone.
type Group struct {
	cmd *exec.Cmd

	mu      sync.Mutex
	members members // as the system knows the group
	over    bool    // the leader may be reaped: send the group nothing more
}

// Start starts a command as the leader of a group. If the command has a context, the whole group is killed when the
// context ends. The caller must call Wait, and must not call the command's own Wait.
func Start(cmd *exec.Cmd) (*Group, error) {
	g := &Group{cmd: cmd}
	lead(cmd)
	if cmd.Cancel != nil {
		cmd.Cancel = g.Kill
	}
	if err := g.start(); err != nil {
		if cmd.Process != nil {
			_, _ = cmd.Process.Kill(), cmd.Wait()
		}
		return nil, err
	}
	return g, nil
}

// start holds the lock, because the context of the command may end before the group is known.
func (g *Group) start() (err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err = g.cmd.Start(); err != nil {
		return err
	}
	g.members, err = adopt(g.cmd.Process.Pid)
	return err
}

// Wait waits for the leader, kills the rest of the group, and returns what the command's Wait returns. Call it once.
func (g *Group) Wait() error {
	g.settle()
	defer g.members.close()
	return g.cmd.Wait()
}

// settle waits until the leader has ended, and kills the rest of the group. The leader has not been reaped then.
func (g *Group) settle() {
	err := g.members.awaitLeader()
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		_ = g.members.kill() // there may be none
	}
	g.over = true
}

// Kill kills the group. It returns os.ErrProcessDone if the group has ended. It is safe for concurrent use.
func (g *Group) Kill() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.over && g.members.kill() == nil {
		return nil
	}
	return g.cmd.Process.Kill() // which knows whether the process has been reaped
}

// Tail keeps the last bytes that are written to it, to report what a command printed. It is safe for concurrent use.
type Tail struct {
	max int // bytes

	mu   sync.Mutex
	text []byte
}

// NewTail returns an empty Tail that keeps at most max bytes.
func NewTail(max int) *Tail { return &Tail{max: max} }

// Write implements io.Writer. It never fails.
func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b[max(0, len(b)-t.max):]...)
	if more := len(t.text) - t.max; more > 0 {
		t.text = append(t.text[:0], t.text[more:]...)
	}
	return len(b), nil
}

// String returns the kept text, without bytes that are not UTF-8.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(t.text), "")
}

//go:build linux

package host_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/sandbox/host"
)

// gatewayMark is the variable by which this program runs as a gateway of a test: it has the engine's name, the
// workspace
// and the script to run there.
const gatewayMark = "FARHAND_TEST_GATEWAY"

// secretName is a variable of such a gateway that no program may read.
const secretName = "FARHAND_TEST_SECRET"

// gatewayMain runs a script with what it writes going where this process's own output goes.
func gatewayMain() int {
	f := strings.SplitN(os.Getenv(gatewayMark), "\n", 3)
	e, err := host.New(host.Config{Program: self, Landlock: f[0] == host.NameLandlock})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	w := sandbox.Workspace{ID: "test", Dir: f[1], UID: os.Geteuid(), GID: os.Getegid()}
	if w.UID == 0 {
		w.UID, w.GID = nobody, nobody
	}
	c := shell(f[2])
	c.Env, c.Stdout, c.Stderr = path, os.Stdout, os.Stderr
	if _, err := e.Run(context.Background(), w, c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	e.Close(context.Background())
	return 0
}

// startGateway runs a script by a gateway that is another process.
func startGateway(
	t *testing.T, engine string, w sandbox.Workspace, attr *syscall.SysProcAttr, script string,
) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(deadline(t), "/proc/self/exe")
	cmd.Env = append(os.Environ(), gatewayMark+"="+engine+"\n"+w.Dir+"\n"+script, secretName+"=hush-"+"hush")
	cmd.SysProcAttr = attr
	return cmd
}

// Nothing is left after a gateway that had no time to do anything about it.
func TestTheGatewayIsKilled(t *testing.T) {
	engines(t, func(t *testing.T, e *host.Engine) {
		w, mark := newWorkspace(t), rand.Text()
		script := `echo x > $TMPDIR/x; setsid sh -c "sleep 1000; true" ` + mark + ` &
			trap '' TERM; echo $PPID; sh -c "sleep 1000; true" ` + mark
		cmd := startGateway(t, e.Name(), w, nil, script)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		supervisor, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		gone := exitOf(t, supervisor)
		if len(marked(t, mark)) == 0 || len(names(t, w.Dir)) != 1 {
			t.Fatal("nothing runs that could be left")
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		gone()
		if left := marked(t, mark); len(left) > 0 {
			t.Errorf("left are %q", left)
		}
		if left := names(t, w.Dir); len(left) > 0 {
			t.Errorf("in the workspace: %q", left)
		}
	})
}

// exitOf returns a function that waits until a process, which is no child, has ended.
func exitOf(t *testing.T, pid int) func() {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return func() {
		t.Helper()
		end := time.Now().Add(10 * time.Second)
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}},
				int(time.Until(end).Milliseconds()))
			switch {
			case err == unix.EINTR:
				continue
			case err != nil || n == 0:
				t.Fatalf("process %d does not end: %v", pid, err)
			}
			return
		}
	}
}

// A program of the gateway's own user finds the gateway's environment nowhere.
func TestSecretsOfTheGateway(t *testing.T) {
	engines(t, func(t *testing.T, e *host.Engine) {
		w := newWorkspace(t)
		var attr *syscall.SysProcAttr
		if os.Geteuid() == 0 { // the gateway, too, is somebody without rights
			attr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		}
		script := `gateway=$(cut -d" " -f4 /proc/$PPID/stat); echo "$gateway"
			cat /proc/$PPID/environ /proc/$gateway/environ /proc/$gateway/mem /proc/$PPID/mem
			for p in /proc/[0-9]*; do cat $p/environ $p/cmdline $p/task/*/environ; done
			cat /proc/*/cwd/environ; env; true`
		cmd := startGateway(t, e.Name(), w, attr, script)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		if e.Name() == host.Name && !strings.HasPrefix(string(out), strconv.Itoa(cmd.Process.Pid)+"\n") {
			t.Fatalf("the program did not find the gateway: %.50q", out)
		}
		if strings.Contains(string(out), "hush-hush") {
			t.Error("a program read the gateway's secret")
		}
	})
}

// A command neither gets rid of its supervisor nor of the gateway, not even with the gateway's own rights.
func TestSupervisorsAreNotKilledFromWithin(t *testing.T) {
	engines(t, func(t *testing.T, e *host.Engine) {
		w := newWorkspace(t)
		c := shell(fmt.Sprintf(`for p in $PPID -$PPID /proc/$PPID/task/* %d; do
			kill -9 -- ${p##*/} 2>/dev/null && echo killed $p; done
			prlimit -p $PPID --cpu=0 2>/dev/null && echo limited
			echo end`, os.Getpid()))
		c.Elevated = e.Name() == host.Name
		if got := run(t, e, w, c); got.out != "end\n" {
			t.Errorf("%+v", got)
		}
		// Its own processes it may kill.
		if got := run(t, e, w, shell("sleep 1000 & kill -9 $! && wait $!")); got.Code != 137 {
			t.Errorf("%+v", got)
		}
	})
}

// A supervisor that somebody kills takes the first process of its command with it, and the engine goes on.
func TestASupervisorIsKilled(t *testing.T) {
	engines(t, func(t *testing.T, e *host.Engine) {
		w, mark := newWorkspace(t), rand.Text()
		c := shell("echo $PPID-; exec sleep 1000", mark)
		c.Env = append([]string{"MARK=" + mark}, path...)
		var out *onText
		out = &onText{text: "-", do: func() {
			pid, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(out.all.String()), "-"))
			if pid > 1 {
				unix.Kill(pid, unix.SIGKILL)
			}
		}}
		c.Stdout = out
		if _, err := e.Run(deadline(t), w, c); !errors.Is(err, sandbox.ErrUnavailable) {
			t.Error(err)
		}
		if got := run(t, e, w, shell("echo again")); got.out != "again\n" {
			t.Errorf("%+v", got)
		}
	})
}

func TestIdleSupervisors(t *testing.T) {
	e, w := newEngine(t, host.Config{Idle: 1, IdleTimeout: 50 * time.Millisecond}), newWorkspace(t)
	parent := func() int {
		pid, err := strconv.Atoi(strings.TrimSpace(run(t, e, w, shell("echo $PPID")).out))
		if err != nil {
			t.Fatal(err)
		}
		return pid
	}
	first := parent()
	exitOf(t, first)() // its time is up
	if left := names(t, w.Dir); len(left) > 0 {
		t.Errorf("in the workspace: %q", left)
	}
	other := newEngine(t, host.Config{})
	e = other
	if first, second := parent(), parent(); first != second {
		t.Errorf("supervisors %d and %d", first, second)
	}
}

//go:build linux

package host_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/sandbox/host"
)

// attackMark is the first argument with which this program runs as an attacker: the next ones name an attack and what
// it
// is told.
const attackMark = "attack"

// attacks try something that a confined program may not do, and return why it did not work. Their argument is what the
// test tells them.
var attacks = map[string]func(arg string) error{
	"read":    func(arg string) error { _, err := os.ReadFile(arg); return err },
	"list":    func(arg string) error { _, err := os.ReadDir(arg); return err },
	"write":   func(arg string) error { return os.WriteFile(arg, nil, 0o600) },
	"create":  func(arg string) error { return os.WriteFile(arg+"/new", nil, 0o600) },
	"remove":  os.Remove,
	"shorten": func(arg string) error { return os.Truncate(arg, 0) },
	"move":    func(arg string) error { return os.Rename(arg, "moved") },
	"link":    func(arg string) error { return os.Link(arg, "linked") },
	"symlink": func(arg string) error {
		if err := os.Symlink(arg, "symlinked"); err != nil {
			return nil // that much is allowed, so the attack did not take place
		}
		_, err := os.ReadFile("symlinked")
		return err
	},
	"execute": func(arg string) error { return unix.Exec(arg, []string{arg}, nil) },
	"tcp":     dial("tcp"),
	"unix":    dial("unix"),
	"listen":  func(arg string) error { _, err := net.Listen("tcp", arg); return err },
	"udp":     func(string) error { return socket(unix.AF_INET, unix.SOCK_DGRAM, 0) },
	"mptcp":   func(string) error { return socket(unix.AF_INET, unix.SOCK_STREAM, 262) },
	"netlink": func(string) error { return socket(unix.AF_NETLINK, unix.SOCK_RAW, 0) },
	"packet":  func(string) error { return socket(unix.AF_PACKET, unix.SOCK_RAW, 0) },
	"pair": func(string) error {
		_, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		return err
	},
	"io_uring": func(string) error {
		var params [120]byte
		return call(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&params)), 0)
	},
	"signal":  func(arg string) error { return unix.Kill(number(arg), 0) },
	"pidfd":   func(arg string) error { return pidfdSignal(number(arg)) },
	"ptrace":  func(arg string) error { return unix.PtraceAttach(number(arg)) },
	"seize":   func(arg string) error { return unix.PtraceSeize(number(arg)) },
	"prlimit": func(arg string) error { return unix.Prlimit(number(arg), unix.RLIMIT_CORE, nil, &unix.Rlimit{}) },
	"memory": func(arg string) error {
		var b [1]byte
		v := []unix.Iovec{{Base: &b[0], Len: 1}}
		_, err := unix.ProcessVMReadv(number(arg), v, []unix.RemoteIovec{{Base: 0x400000, Len: 1}}, 0)
		return err
	},
	"mount":      func(arg string) error { return unix.Mount("none", arg, "tmpfs", 0, "") },
	"unshare":    func(string) error { return unix.Unshare(unix.CLONE_NEWUSER) },
	"name space": func(string) error { return call(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD), 0, 0) },
	"chroot":     unix.Chroot,
	"device":     func(arg string) error { return unix.Mknod(arg, unix.S_IFCHR|0o600, 1<<8|3) },
	"keys":       func(string) error { _, err := unix.KeyctlInt(unix.KEYCTL_GET_KEYRING_ID, -3, 0, 0, 0); return err },
	"bpf":        func(string) error { return call(unix.SYS_BPF, 0, 0, 0) },
	"perf":       func(string) error { return call(unix.SYS_PERF_EVENT_OPEN, 0, 0, 0) },
	"shared":     func(string) error { _, err := unix.SysvShmGet(1, 4096, unix.IPC_CREAT|0o600); return err },
	"setuid":     func(string) error { return unix.Setresuid(0, 0, 0) },
}

func dial(network string) func(string) error {
	return func(arg string) error { _, err := net.Dial(network, arg); return err }
}

func socket(domain, kind, protocol int) error {
	_, err := unix.Socket(domain, kind, protocol)
	return err
}

func call(number, a, b, c uintptr) error {
	if _, _, e := unix.RawSyscall(number, a, b, c); e != 0 {
		return e
	}
	return nil
}

func number(arg string) int {
	n, err := strconv.Atoi(arg)
	if err != nil {
		panic(err)
	}
	return n
}

// pidfdSignal sends a signal by a folder of /proc.
func pidfdSignal(pid int) error {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid), unix.O_DIRECTORY|unix.O_PATH, 0)
	if err != nil {
		return err
	}
	return unix.PidfdSendSignal(fd, 0, nil, 0)
}

// attackMain does an attack. 0: it worked.
func attackMain(args []string) int {
	if err := attacks[args[0]](strings.Join(args[1:], " ")); err != nil {
		fmt.Print(err)
		return 1
	}
	return 0
}

// TestEscapesFromLandlock tries to get out of the sandbox, each attack also without it where that hurts nobody: one
// that does not
// work there shows nothing here.
func TestEscapesFromLandlock(t *testing.T) {
	needLandlock(t)
	confined, free := newEngine(t, host.Config{Landlock: true}), newEngine(t, host.Config{})
	w, outside := newWorkspace(t), newWorkspace(t) // of the same user
	put(t, outside, "secret", "secret")
	put(t, outside, "program", "#!/bin/sh\n")
	copyProgram(t, w)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	local, err := net.Listen("unix", outside.Dir+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	if err := os.Chmod(outside.Dir+"/socket", 0o777); err != nil {
		t.Fatal(err)
	}
	secret, self := outside.Dir+"/secret", strconv.Itoa(os.Getpid())
	neighbour := startNeighbour(t, outside)
	for _, a := range []struct {
		attack, arg string
		works       bool // outside the sandbox
	}{
		{"read", secret, true}, {"read", "/proc/self/root" + secret, true},
		{"read", "/proc/self/cwd/../" + "../etc/passwd", false},
		{"read", "/etc/passwd", true}, {"read", "/etc/shadow", false}, {"read", "/root/.ssh/id_rsa", false},
		{"read", "/proc/1/environ", false}, {"read", "/proc/" + self + "/environ", false},
		{"read", "/proc/self/environ", true},
		{"list", "/", true}, {"list", "/proc", true}, {"list", "/tmp", true}, {"list", outside.Dir, true},
		{"write", secret, true}, {"create", outside.Dir, true}, {"create", "/tmp", false},
		{"create", "/dev/shm", false},
		{"shorten", secret, true}, {"link", secret, true}, {"symlink", secret, true}, {"move", secret, true},
		{"remove", secret, true}, {"execute", outside.Dir + "/program", true},
		{"tcp", tcp.Addr().String(), true}, {"tcp", "169.254.169.254:80", false}, {"tcp", "[::1]:6379", false},
		{"unix", outside.Dir + "/socket", true}, {"unix", "@abstract", false}, {"listen", "127.0.0.1:0", true},
		{"udp", "", true}, {"mptcp", "", false}, {"netlink", "", true}, {"packet", "", false}, {"pair", "", true},
		{"io_uring", "", false}, {"signal", neighbour, false}, {"signal", self, false}, {"pidfd", neighbour, false},
		{"ptrace", neighbour, false}, {"seize", neighbour, false}, {"prlimit", neighbour, true},
		{"memory", neighbour, false}, {"ptrace", self, false}, {"mount", "mnt", false}, {"unshare", "", false},
		{"name space", "", false}, {"chroot", "/", false}, {"device", "null", false}, {"keys", "", false},
		{"bpf", "", false}, {"perf", "", false}, {"shared", "", true}, {"setuid", "", false},
	} {
		t.Run(a.attack+" "+a.arg, func(t *testing.T) {
			c := sandbox.Command{Args: []string{"./attacker", attackMark, a.attack, a.arg}}
			if got := run(t, confined, w, c); got.Code != 1 || got.out == "" {
				t.Errorf("%+v", got)
			}
			if !a.works {
				return
			}
			put(t, outside, "secret", "secret")
			for _, name := range []string{"moved", "linked", "symlinked"} {
				os.Remove(w.Dir + "/" + name)
			}
			if got := run(t, free, w, c); got.Code != 0 {
				t.Errorf("it does not work without the sandbox either: %+v", got)
			}
		})
	}
	if content, err := os.ReadFile(w.Dir + "/null"); err == nil {
		t.Errorf("a device was made: %q", content)
	}
}

// copyProgram puts this program into a workspace, so that what runs there can be it.
func copyProgram(t *testing.T, w sandbox.Workspace) {
	t.Helper()
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	put(t, w, "attacker", string(program))
}

// startNeighbour starts a program of the same user, outside of all engines, and returns its process.
func startNeighbour(t *testing.T, w sandbox.Workspace) string {
	t.Helper()
	cmd := exec.CommandContext(deadline(t), "sleep", "1000")
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: uint32(w.UID), Gid: uint32(w.GID)},
		}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return strconv.Itoa(cmd.Process.Pid)
}

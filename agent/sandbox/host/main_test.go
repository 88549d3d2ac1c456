//go:build linux

package host_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/farhand/farhand/agent/sandbox/host"
)

// mainMark is the variable by which this program is one that does not call Main.
const mainMark = "FARHAND_TEST_MAIN"

// ownMain says that it runs, and that no engine starts programs for it.
func ownMain() int {
	e, err := host.New(host.Config{})
	fmt.Print("own main; ", e == nil, ", ", err)
	return 7
}

// A program that imports this package runs its own main, however it is started. An engine says that Main was not
// called; it does not start the program again and again.
func TestProgramKeepsItsMain(t *testing.T) {
	t.Parallel()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	gateway, socket := os.NewFile(uintptr(pair[0]), "gateway"), os.NewFile(uintptr(pair[1]), "supervisor")
	defer socket.Close()
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{"farhand-supervisor"}, Env: append(os.Environ(), mainMark+"=1"),
		ExtraFiles: []*os.File{socket}, // as a supervisor is started
	}
	gateway.Close() // a supervisor would end
	out, err := cmd.Output()
	if cmd.ProcessState.ExitCode() != 7 || !strings.HasPrefix(string(out), "own main; true, ") ||
		!strings.Contains(string(out), "host.Main") {
		t.Errorf("%v, %q", err, out)
	}
}

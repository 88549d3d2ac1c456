package procgroup

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/windows"
)

// role is the variable that makes the test's program a leader or its child.
const role = "PROCGROUP_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "leader": // prints the number of its child, and ends with its input
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), role+"=child")
		if err := child.Start(); err != nil {
			panic(err)
		}
		fmt.Println(child.Process.Pid)
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	case "child":
		select {}
	default:
		os.Exit(m.Run())
	}
}

// The child of a leader ends with it, whether it ends by itself or is killed.
func TestJob(t *testing.T) {
	for name, end := range map[string]func(g *Group, stdin *os.File){
		"ends":   func(_ *Group, stdin *os.File) { _ = stdin.Close() },
		"killed": func(g *Group, _ *os.File) { _ = g.Kill() },
	} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), role+"=leader")
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdin = read
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		g, err := Start(cmd)
		_ = read.Close()
		if err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		pid, err2 := strconv.Atoi(strings.TrimSpace(line))
		if err != nil || err2 != nil {
			t.Fatal(line, err, err2)
		}
		child, err := windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(pid))
		if err != nil {
			t.Fatal(err)
		}
		end(g, write)
		_ = g.Wait() // with an error if it was killed
		if event, err := windows.WaitForSingleObject(child, 10_000); event != windows.WAIT_OBJECT_0 {
			t.Errorf("%s: the child still runs: %v, %v", name, event, err)
		}
		_ = windows.CloseHandle(child)
		_ = write.Close()
	}
}

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestDeviceOfAHostileServer: a command of `farhand device --mcp` finds the token of that program in no process's
// environment, and what it has started in a session of its own ends with the program.
func TestDeviceOfAHostileServer(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "farhand-hostile-") // t.TempDir is for one user alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	program, found, pid := filepath.Join(dir, "farhand"), filepath.Join(dir, "found"), filepath.Join(dir, "pid")
	copyProgram(t, farhandBinary, program)
	command := fmt.Sprintf("cd %s; setsid sh -c 'echo $$ > pid; exec sleep 300' & "+
		"cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c SECRET-OF-THIS-TEST > counted; "+
		"mv counted found; exec cat", dir)
	device := exec.Command(program, "device", "--server", "http://127.0.0.1:1", "--device", "hostile", "--mcp", command)
	device.Dir, device.Stderr = dir, os.Stderr
	device.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "FARHAND_TOKEN=SECRET-OF-THIS-TEST"}
	if os.Getuid() == 0 { // who may read everything
		device.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	if err := device.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	t.Cleanup(func() {
		if !ended {
			_ = device.Process.Kill()
			_ = device.Wait()
		}
	})
	eventually(t, waitLimit, "the command has looked around", func() bool {
		_, err := os.Stat(found)
		return err == nil && readPID(pid) > 1
	})
	if count, err := os.ReadFile(found); err != nil || string(count) != "0\n" {
		t.Errorf("environments with the token: %q, %v", count, err)
	}
	sleeper := readPID(pid)
	if err := device.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = device.Wait()
	ended = true
	eventually(t, waitLimit, "what it started has ended", func() bool {
		return syscall.Kill(sleeper, 0) == syscall.ESRCH
	})
}

func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

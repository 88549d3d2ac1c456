// Package dockertest starts a real Docker engine for tests, with a single tiny image. It needs root, as dockerd does.
// All its files are in a temporary folder. Stop removes them; they are also removed if the test process is killed.
package dockertest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/moby/moby/client"
)

const (
	startTimeout = 60 * time.Second // for the engine to answer
	askTimeout   = 5 * time.Second
	maxLog       = 4 << 10 // bytes of the log that an error includes
)

// sitter runs an engine and prints its pid. When its standard input closes, because the test closes it or its process
// ends, it stops the engine, kills its remaining processes, and removes its mounts.
const sitter = `dir=$1; shift
"$@" >>"$dir/log" 2>&1 & pid=$!; echo $pid; cat >/dev/null
kill $pid 2>/dev/null; i=0
while kill -0 $pid 2>/dev/null && [ $i -lt 100 ]; do sleep 0.1; i=$((i+1)); done
kill -9 $pid 2>/dev/null; wait $pid
for p in $(grep -lsF "$dir/" /proc/[0-9]*/cmdline | cut -d/ -f3); do [ $p = $$ ] || kill -9 $p 2>/dev/null; done
grep -F " $dir/" /proc/mounts | cut -d' ' -f2 | sort -r | while read -r m; do umount -l "$m"; done`

// cleaner removes the folder, also if the test process is gone.
const cleaner = `; i=0; while [ $i -lt 50 ] && ! rm -rf "$dir"; do sleep 0.1; i=$((i+1)); done`

// Engine is a running Docker engine.
type Engine struct {
	dir    string
	pid    int
	stdin  io.Closer // of the sitter; nil: the engine does not run
	sitter *exec.Cmd
}

// Available returns why no engine can be started here, or nil.
func Available() error {
	if runtime.GOOS != "linux" {
		return errors.New("dockerd runs on Linux")
	}
	if os.Geteuid() != 0 {
		return errors.New("dockerd needs root")
	}
	if !mayMount() {
		return errors.New("dockerd needs full root privileges; root may not mount here")
	}
	for _, p := range []string{"dockerd", "containerd", "docker-init", "busybox"} {
		if _, err := program(p); err != nil {
			return fmt.Errorf("%s is not installed; apt-get install -y docker.io busybox-static", p)
		}
	}
	return nil
}

// mayMount reports whether this process has CAP_SYS_ADMIN. Root lacks it in most containers.
func mayMount() bool {
	status, _ := os.ReadFile("/proc/self/status")
	_, caps, _ := strings.Cut(string(status), "\nCapEff:\t")
	caps, _, _ = strings.Cut(caps, "\n")
	bits, err := strconv.ParseUint(caps, 16, 64)
	return err == nil && bits&(1<<21) != 0
}

// program finds a program, also in /usr/sbin, which is often only in root's PATH.
func program(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return exec.LookPath(filepath.Join("/usr/sbin", name))
}

// Start starts an engine, and waits until it answers and has Image.
func Start() (*Engine, error) {
	if err := Available(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("/tmp", "dk") // short, because the length of socket paths is limited
	if err != nil {
		return nil, err
	}
	e := &Engine{dir: dir}
	err = e.Restart()
	if err == nil {
		err = e.Import(Image)
	}
	if err != nil {
		e.Stop()
		return nil, err
	}
	return e, nil
}

// Host returns the address of the engine.
func (e *Engine) Host() string { return "unix://" + filepath.Join(e.dir, "s") }

// Client returns a client of the engine. The caller closes it.
func (e *Engine) Client() (*client.Client, error) { return client.New(client.WithHost(e.Host())) }

// Restart starts the engine after Kill, with its previous containers and images.
func (e *Engine) Restart() error {
	dockerd, err := program("dockerd")
	if err != nil {
		return err
	}
	in := func(name string) string { return filepath.Join(e.dir, name) }
	_ = os.Remove(in("p")) // left by a killed engine
	cmd := exec.Command("sh", "-c", sitter+cleaner, "sh", e.dir, dockerd, "--data-root", in("d"),
		"--exec-root", in("e"), "--pidfile", in("p"), "--host", e.Host(), "--storage-driver", "vfs",
		"--iptables=false", "--ip6tables=false", "--bridge=none")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // No interrupts from the terminal.
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	e.stdin, e.sitter = stdin, cmd
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return err
	}
	if e.pid, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
		return err
	}
	return e.wait()
}

// wait waits until the engine answers.
func (e *Engine) wait() error {
	api, err := e.Client()
	if err != nil {
		return err
	}
	defer api.Close()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(startTimeout); ; <-tick.C {
		ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
		_, err := api.Ping(ctx, client.PingOptions{})
		cancel()
		if err == nil {
			return nil
		}
		if syscall.Kill(e.pid, 0) != nil || time.Now().After(end) {
			log, _ := os.ReadFile(filepath.Join(e.dir, "log"))
			return fmt.Errorf("dockertest: the engine did not start: %w\n%s", err, log[max(0, len(log)-maxLog):])
		}
	}
}

// Kill kills the engine as kill -9 does. Its data stays for Restart.
func (e *Engine) Kill() error {
	err := syscall.Kill(e.pid, syscall.SIGKILL)
	// Its containerd dies with it. Unless that process is reaped, the next engine would wait for it, so remove its pid
	// file.
	_ = os.Remove(filepath.Join(e.dir, "e", "containerd", "containerd.pid"))
	_ = e.sitter.Process.Kill() // before it cleans up
	_ = e.stdin.Close()
	_ = e.sitter.Wait()
	e.stdin = nil
	return err
}

// Pause freezes the engine: connections stay open, but get no answers.
func (e *Engine) Pause() error { return syscall.Kill(e.pid, syscall.SIGSTOP) }

// Resume ends a Pause.
func (e *Engine) Resume() error { return syscall.Kill(e.pid, syscall.SIGCONT) }

// Stop ends the engine and removes all its files.
func (e *Engine) Stop() {
	if e.stdin == nil {
		_ = e.Restart() // after Kill, so that the sitter cleans up
	}
	if e.stdin != nil {
		_ = e.stdin.Close()
		_ = e.sitter.Wait()
	}
	_ = os.RemoveAll(e.dir)
}

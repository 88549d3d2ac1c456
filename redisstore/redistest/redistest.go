// Package redistest starts real Redis servers for tests: a single one, a cluster, a master behind Sentinel. They listen
// on free loopback ports and keep nothing on disk unless configured. They are stopped when the test ends, even if the
// test process is killed.
package redistest

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
)

const (
	host         = "127.0.0.1"
	startTimeout = time.Minute // for servers to start and agree
	tries        = 5           // attempts to find a port that no other process takes meanwhile
)

// babysitter runs its arguments in the background and prints their process id. It kills what it started when its
// standard input closes: the test closes it, or the test process is gone.
const babysitter = `"$@" >/dev/null 2>&1 & pid=$!; echo $pid; cat >/dev/null; kill -9 $pid 2>/dev/null; wait`

// Server is one server process.
type Server struct {
	t       testing.TB
	program string // default redis-server
	port    int
	dir     string
	args    []string // after the program

	mu     sync.Mutex
	pid    int
	stdin  io.Closer // of the babysitter; nil when the server is not running
	sitter *exec.Cmd
}

// Start starts a server with further configuration, given as on the command line, and waits until it answers.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return startProgram(t, "redis-server", args...)
}

func startProgram(t testing.TB, program string, args ...string) *Server {
	t.Helper()
	needPrograms(t)
	for try := 1; ; try++ {
		s := &Server{t: t, program: program, port: freePort(t), dir: t.TempDir()}
		s.args = append([]string{
			"--port", strconv.Itoa(s.port), "--bind", host, "--dir", s.dir, "--save", "", "--appendonly", "no",
		}, args...)
		err := s.start()
		if err == nil {
			t.Cleanup(s.Kill)
			return s
		}
		s.Kill()
		if try == tries {
			t.Fatalf("redistest: start redis-server: %v", err)
		}
	}
}

// Addr returns host:port.
func (s *Server) Addr() string { return net.JoinHostPort(host, strconv.Itoa(s.port)) }

// URL returns the URL of this server alone.
func (s *Server) URL() string { return "redis://" + s.Addr() }

// Kill ends the process immediately and waits until it is gone. It does nothing if the process is not running.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stdin == nil {
		return
	}
	_ = s.stdin.Close()
	_ = s.sitter.Wait()
	s.stdin = nil
}

// Restart starts the process again after Kill, on the same port and in the same folder: empty, unless its configuration
// has an append-only file.
func (s *Server) Restart() {
	s.t.Helper()
	if err := s.start(); err != nil {
		s.t.Fatalf("redistest: restart redis-server: %v", err)
	}
}

// Pause freezes the process: its connections stay open, and nothing answers.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := syscall.Kill(s.pid, sig); err != nil {
		s.t.Fatalf("redistest: signal redis-server: %v", err)
	}
}

func (s *Server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	cmd := exec.Command("sh", append([]string{"-c", babysitter, "sh", cmp.Or(s.program, "redis-server")}, s.args...)...)
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
	s.stdin, s.sitter = stdin, cmd
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return err
	}
	if s.pid, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
		return err
	}
	return poll(func() error {
		if syscall.Kill(s.pid, 0) != nil {
			return errStop{fmt.Errorf("the process ended; is port %d taken?", s.port)}
		}
		return ping(s.Addr())
	})
}

// Command runs redis-cli against the server and returns what it prints.
func (s *Server) Command(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	all := append([]string{"-h", host, "-p", strconv.Itoa(s.port)}, args...)
	out, err := exec.CommandContext(ctx, "redis-cli", all...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// transact runs commands in one transaction, which redis-cli cannot do with its arguments.
func (s *Server) transact(commands ...string) error {
	conn, err := net.DialTimeout("tcp", s.Addr(), startTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(startTimeout))
	text := "MULTI\r\n" + strings.Join(commands, "\r\n") + "\r\nEXEC\r\n"
	if _, err := io.WriteString(conn, text); err != nil {
		return err
	}
	answers := bufio.NewReader(conn)
	for range 2 + 2*len(commands) { // of MULTI, of each command that it is queued, of EXEC, and of each command
		line, err := answers.ReadString('\n')
		if err != nil {
			return err
		}
		if strings.HasPrefix(line, "-") {
			return errors.New(strings.TrimSpace(line))
		}
	}
	return nil
}

// needPrograms fails the test, and does not skip it, if a program of Redis is missing.
func needPrograms(t testing.TB) {
	t.Helper()
	for _, program := range []string{"redis-server", "redis-cli"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("redistest: %s is not on the PATH; install it with: apt-get install -y redis-server", program)
		}
	}
}

// freePort returns a free port. The port for the cluster bus, 10,000 above, is also free. The system gives neither to a
// connection, so a server can start again on its port.
func freePort(t testing.TB) int {
	t.Helper()
	return testkit.FreePort(t, 20000, 22700, 10000)
}

// ping sends a PING to the server.
func ping(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.HasPrefix(line, "+PONG") && !strings.HasPrefix(line, "-NOAUTH") {
		return fmt.Errorf("answered %q", line)
	}
	return nil
}

// errStop ends a poll early.
type errStop struct{ error }

// poll calls f until it returns nil, for at most startTimeout.
func poll(f func() error) error {
	deadline := time.Now().Add(startTimeout)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := f()
		if err == nil {
			return nil
		}
		if stop, ok := err.(errStop); ok {
			return stop.error
		}
		if time.Now().After(deadline) {
			return err
		}
		time.Sleep(pause)
	}
}

// config writes a configuration file, which Sentinel requires.
func config(t testing.TB, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "redis.conf")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

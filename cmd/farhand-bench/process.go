package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	startTimeout = 15 * time.Second
	stopTimeout  = 10 * time.Second
)

// child is a pod or a reference. It ends when its standard input does, so it never outlives who started it, however
// that ended; and it answers a line "memory" with what its heap holds.
type child struct {
	cmd   *exec.Cmd
	url   string
	stdin io.WriteCloser
	out   *bufio.Reader
	log   *tail
	done  chan struct{}
	stop  func()
}

// tail keeps the end of what a process prints.
type tail struct {
	mu sync.Mutex
	b  []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	t.b = t.b[max(0, len(t.b)-4096):]
	return len(p), nil
}

// String returns what was kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.b))
}

// startChild starts a hidden command of a program that serves HTTP on addr, and waits until it is ready.
func startChild(ctx context.Context, program, addr string, settings []string, args ...string) (*child, error) {
	c := &child{cmd: exec.Command(program, args...), url: "http://" + addr, log: &tail{}, done: make(chan struct{})}
	for _, kv := range os.Environ() { // what the user has exported is not what is measured
		if !strings.HasPrefix(kv, "FARHAND_") {
			c.cmd.Env = append(c.cmd.Env, kv)
		}
	}
	c.cmd.Env = append(c.cmd.Env, settings...)
	c.cmd.Stderr = c.log
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.stdin, c.out = stdin, bufio.NewReader(stdout)
	go func() { _ = c.cmd.Wait(); close(c.done) }()
	c.stop = sync.OnceFunc(func() {
		_ = c.stdin.Close()
		select {
		case <-c.done:
		case <-time.After(stopTimeout):
			c.kill()
		}
	})
	ready := make(chan error, 1)
	go func() {
		line, err := c.out.ReadString('\n')
		if err == nil && line != "serving\n" {
			err = fmt.Errorf("it printed %q", line)
		}
		ready <- err
	}()
	select {
	case err = <-ready:
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(startTimeout):
		err = errors.New("it is not ready in time")
	}
	if err != nil {
		c.kill()
		return nil, fmt.Errorf("start %s: %w\n%s", strings.Join(args, " "), err, c.log)
	}
	return c, c.awaitReady(ctx)
}

// awaitReady polls the probe of a pod.
func (c *child) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			c.stop()
			return fmt.Errorf("%s is not ready: %w\n%s", c.url, ctx.Err(), c.log)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// kill ends the process at once.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.done
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// memory has the child collect its garbage.
func (c *child) memory() (memoryUse, error) {
	var m memoryUse
	if _, err := io.WriteString(c.stdin, "memory\n"); err != nil {
		return m, err
	}
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(line, &m)
}

// freeAddr returns a loopback address nobody listens on.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// babysitter runs its arguments and ends them when its standard input closes: Redis does not look at its own.
const babysitter = `"$@" >/dev/null 2>&1 & pid=$!; echo $pid; read _; kill -9 $pid 2>/dev/null; wait`

// redisServer is a Redis of our own.
type redisServer struct {
	url  string
	pid  int
	stop func()
}

// startRedis starts a redis-server that keeps nothing.
func startRedis(ctx context.Context) (*redisServer, error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, errors.New("redis-server is not on the PATH; install it, or measure running pods with `farhand bench`")
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command("sh", "-c", babysitter, "sh", "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "",
		"--appendonly", "no", "--maxclients", "10000")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &redisServer{url: "redis://" + addr}
	s.stop = sync.OnceFunc(func() { _ = stdin.Close(); _ = cmd.Wait() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err == nil {
		s.pid, err = strconv.Atoi(strings.TrimSpace(line))
	}
	if err == nil {
		err = s.await(ctx)
	}
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	return s, nil
}

func (s *redisServer) await(ctx context.Context) error {
	probe, err := newRedisProbe(s.url)
	if err != nil {
		return err
	}
	defer probe.Close()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if err := probe.Client.Ping(ctx).Err(); err == nil {
			return nil
		} else if ctx.Err() != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

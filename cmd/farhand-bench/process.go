package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

const (
	startTimeout = 15 * time.Second
	stopTimeout  = 10 * time.Second
)

// anyAddr lets the system choose a port.
const anyAddr = "127.0.0.1:0"

// child is a pod or a reference. It ends when its standard input ends, so it never outlives its parent, even if the
// parent is killed.
type child struct {
	cmd   *exec.Cmd
	url   string // where it serves
	about string // where it reports about itself: child.go
	stdin io.WriteCloser
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

// String returns the kept text.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.b))
}

// startChild starts a hidden command of a program that serves HTTP, and waits until it serves.
func startChild(ctx context.Context, program string, settings []string, args ...string) (*child, error) {
	c := &child{cmd: exec.Command(program, args...), log: &tail{}, done: make(chan struct{})}
	for _, kv := range os.Environ() { // the user's variables must not affect the measurement
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
	c.stdin = stdin
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
		line, err := bufio.NewReader(stdout).ReadString('\n')
		if err == nil {
			var addr, about string
			_, err = fmt.Sscanf(line, "serving %s %s", &addr, &about)
			c.url, c.about = "http://"+addr, "http://"+about
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
	return c, nil
}

// kill ends the process immediately.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.done
}

func (c *child) pid() int { return c.cmd.Process.Pid }

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/cmd/farhand/bench"
)

// babysitter runs its arguments and kills them when its standard input closes. Redis does not watch its own.
const babysitter = `"$@" >/dev/null 2>&1 & pid=$!; echo $pid; read _; kill -9 $pid 2>/dev/null; wait`

// redisServer is a Redis that this program started.
type redisServer struct {
	url  string
	pid  int
	stop func()
}

// startRedis starts a redis-server without persistence.
func startRedis(ctx context.Context) (*redisServer, error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, errors.New(
			"redis-server is not on the PATH; install it, or measure running pods with `farhand bench`")
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	return launchRedis(ctx, addr)
}

// launchRedis starts a redis-server at an address, with additional configuration.
func launchRedis(ctx context.Context, addr string, more ...string) (*redisServer, error) {
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command("sh", append([]string{
		"-c", babysitter, "sh", "redis-server", "--port", port, "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--maxclients", "10000",
	}, more...)...)
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
	probe, err := bench.NewRedisProbe(s.url)
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

// freeAddr returns a free loopback address.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", anyAddr)
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

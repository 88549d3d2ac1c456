package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/farhand/farhand/cmd/farhand/bench"
)

// benchToken is what callers and devices of our own fleets present: identity stays on in what is measured.
const benchToken = "bench-token-0123456789"

// The hidden commands of this program that its children run.
const (
	podCommand       = "pod"
	referenceCommand = "reference"
)

// fleet is a Redis with pods, all of our own.
type fleet struct {
	program  string
	redis    *redisServer
	probe    *redisProbe
	pods     []*child
	profiles string        // directory; empty: none are written
	settle   time.Duration // until what is written in batches is written
}

// startFleet starts a Redis and n pods. Settings are added to the environment of the pods.
func (o *options) startFleet(ctx context.Context, n int, settings ...string) (*fleet, error) {
	f := &fleet{program: o.Program, profiles: o.Profiles, settle: idleSettle}
	if o.Quick {
		f.settle = quickSettle
	}
	var err error
	if f.redis, err = startRedis(ctx); err != nil {
		return nil, err
	}
	if f.probe, err = newRedisProbe(f.redis.url); err != nil {
		f.close()
		return nil, err
	}
	for range n {
		if _, err := f.addPod(ctx, settings...); err != nil {
			f.close()
			return nil, err
		}
	}
	return f, nil
}

// addPod starts one more pod.
func (f *fleet) addPod(ctx context.Context, settings ...string) (*child, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	env := append([]string{
		"FARHAND_ADDR=" + addr, "FARHAND_REDIS_URL=" + f.redis.url, "FARHAND_TOKEN=" + benchToken, "FARHAND_LOG_LEVEL=warn",
	}, settings...)
	args := []string{podCommand}
	if f.profiles != "" {
		args = append(args, "--profiles", f.profiles)
	}
	pod, err := startChild(ctx, f.program, addr, env, args...)
	if err != nil {
		return nil, err
	}
	f.pods = append(f.pods, pod)
	return pod, nil
}

// addReferences starts n pods of the featureless server on the same Redis, which the fleet stops with its own.
func (f *fleet) addReferences(ctx context.Context, n int) ([]*child, error) {
	var list []*child
	for i := range n {
		addr, err := freeAddr()
		if err != nil {
			return nil, err
		}
		c, err := startChild(ctx, f.program, addr, nil, referenceCommand,
			"--addr", addr, "--redis", f.redis.url, "--pod", "ref"+strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		f.pods = append(f.pods, c)
		list = append(list, c)
	}
	return list, nil
}

// profile writes profiles of the pods while run runs, if profiles are wanted.
func (f *fleet) profile(name string, pods []*child, run func() error) error {
	if f.profiles == "" {
		return nil
	}
	for i, p := range pods {
		if _, err := fmt.Fprintf(p.stdin, "profile %s-pod%d\n", name, i); err != nil {
			return err
		}
	}
	err := run()
	for _, p := range pods {
		if _, e := io.WriteString(p.stdin, "stop\n"); e != nil {
			return errors.Join(err, e)
		}
		if line, e := p.out.ReadString('\n'); e != nil || line != "profiled\n" {
			return errors.Join(err, e, fmt.Errorf("profile of %s: %q", p.url, line))
		}
	}
	return err
}

// close stops everything the fleet started.
func (f *fleet) close() {
	for _, p := range f.pods {
		p.stop()
	}
	if f.probe != nil {
		f.probe.Close()
	}
	f.redis.stop()
}

// urls returns where the pods listen.
func urls(pods []*child) []string {
	list := make([]string, len(pods))
	for i, p := range pods {
		list[i] = p.url
	}
	return list
}

// use makes pods of our own those of the side.
func use(s *bench.Side, pods []*child) {
	s.Pods, s.Token, s.Names, s.PIDs = urls(pods), benchToken, nil, nil
	for i, p := range pods {
		s.Names, s.PIDs = append(s.Names, "pod"+strconv.Itoa(i)), append(s.PIDs, p.pid())
	}
}

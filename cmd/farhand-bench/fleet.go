package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/farhand/farhand/cmd/farhand/bench"
)

// benchToken is the token of callers and devices of these fleets: authentication is part of the measurement.
const benchToken = "bench-token-0123456789"

// Hidden commands of this program, which its children run.
const (
	podCommand       = "pod"
	referenceCommand = "reference"
)

// fleet is a Redis with pods, all started by this program.
type fleet struct {
	program  string
	redis    *redisServer
	probe    *redisProbe // nil for a Cluster
	pods     []*child
	profiles string        // directory; empty: none are written
	settle   time.Duration // until batched writes are done

	profileTime time.Duration // of the CPU profile
}

// startFleet starts a Redis and n pods. Settings are added to the environment of the pods.
func (o *options) startFleet(ctx context.Context, n int, settings ...string) (*fleet, error) {
	server, err := startRedis(ctx)
	if err != nil {
		return nil, err
	}
	f := o.newFleet(server)
	if f.probe, err = newRedisProbe(f.redis.url); err != nil {
		f.close()
		return nil, err
	}
	return f, f.addPods(ctx, n, settings...)
}

// newFleet returns a fleet without pods.
func (o *options) newFleet(server *redisServer) *fleet {
	return &fleet{
		program: o.Program, redis: server, profiles: o.Profiles,
		settle: quickOr(o, quickSettle, idleSettle), profileTime: quickOr(o, time.Second, profileTime),
	}
}

// startClusterFleet starts a Redis Cluster of six and n pods. It has no probe, which would have to ask every member.
func (o *options) startClusterFleet(ctx context.Context, n int) (*fleet, error) {
	server, err := startCluster(ctx)
	if err != nil {
		return nil, err
	}
	f := o.newFleet(server)
	return f, f.addPods(ctx, n)
}

// addPods starts n more pods. If one does not start, the fleet is closed.
func (f *fleet) addPods(ctx context.Context, n int, settings ...string) error {
	for range n {
		if _, err := f.addPod(ctx, settings...); err != nil {
			f.close()
			return err
		}
	}
	return nil
}

// addPod starts one more pod.
func (f *fleet) addPod(ctx context.Context, settings ...string) (*child, error) {
	env := append([]string{
		"FARHAND_ADDR=" + anyAddr, "FARHAND_REDIS_URL=" + f.redis.url, "FARHAND_TOKEN=" + benchToken,
		"FARHAND_LOG_LEVEL=warn",
		"FARHAND_OPEN_RATE=100000", // all devices come from one address, faster than any single client would
	}, settings...)
	pod, err := startChild(ctx, f.program, env, podCommand)
	if err != nil {
		return nil, err
	}
	f.pods = append(f.pods, pod)
	return pod, nil
}

// addReferences starts n pods of the featureless server on the same Redis. The fleet stops them with its own. With
// lookup they read a device's pod from Redis on each call.
func (f *fleet) addReferences(ctx context.Context, n int, lookup bool) ([]*child, error) {
	var list []*child
	for i := range n {
		c, err := startChild(ctx, f.program, nil, referenceCommand,
			"--redis", f.redis.url, "--pod", "ref"+strconv.Itoa(i), "--lookup="+strconv.FormatBool(lookup))
		if err != nil {
			return nil, err
		}
		f.pods = append(f.pods, c)
		list = append(list, c)
	}
	return list, nil
}

// profile writes profiles of the pods if the options ask for them: allocations before and after run, and the CPU during
// it. run may be nil.
func (f *fleet) profile(name string, pods []*child, run func() error) error {
	if f.profiles == "" {
		return nil
	}
	if err := os.MkdirAll(f.profiles, 0o755); err != nil {
		return err
	}
	write := func(pod int, kind, what string) error {
		text, err := pods[pod].ask(what)
		if err != nil {
			return fmt.Errorf("profile of %s: %w", pods[pod].url, err)
		}
		return os.WriteFile(filepath.Join(f.profiles, fmt.Sprintf("%s-pod%d.%s.pprof", name, pod, kind)), text, 0o600)
	}
	var work errgroup.Group
	for i := range pods {
		// A heap profile is complete up to the last garbage collection.
		if err := write(i, "before", "/heap?gc=1"); err != nil {
			return err
		}
		if run != nil {
			work.Go(func() error {
				return write(i, "cpu",
					fmt.Sprintf("/profile?seconds=%.0f", f.profileTime.Seconds()))
			})
		}
	}
	var err error
	if run != nil {
		err = errors.Join(run(), work.Wait())
	}
	for i := range pods {
		err = errors.Join(err, write(i, "allocs", "/heap?gc=1"))
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

// urls returns the pods' URLs.
func urls(pods []*child) []string {
	list := make([]string, len(pods))
	for i, p := range pods {
		list[i] = p.url
	}
	return list
}

// sideOf returns a side of pods that this program started.
func sideOf(name string, pods ...*child) *bench.Side {
	return &bench.Side{Name: name, Pods: urls(pods), Token: benchToken, PIDs: pids(pods)}
}

func pids(pods []*child) []int {
	list := make([]int, len(pods))
	for i, p := range pods {
		list[i] = p.pid()
	}
	return list
}

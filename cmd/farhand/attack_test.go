package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore/redistest"
)

// The attack suite (`make attack`): each TestAttack… does to a real pod what an attacker would who holds a valid token,
// and checks that the pod lives, that an honest device beside it is served, and what the attack cost.
const (
	attackAddressSpace = 3584 << 10 // KiB of address space a pod under attack may have: 3.5 GiB
	honestP99          = 500 * time.Millisecond
	honestPause        = 20 * time.Millisecond
	honestFactor       = 3 // over the control's p99, where the whole machine is slow
	// attackTime is how long most attacks go on: each has reached its peak of memory after a second or two.
	attackTime = 3 * time.Second
)

// arena is a fleet under attack, with an honest device and its caller beside the attacker. A control pod that nobody
// attacks runs on the same machine, so that a slow machine is told from a slow pod.
type arena struct {
	pods    []*pod
	redis   *redistest.Server
	control *pod
	idle    []int // KiB resident of each pod before the attack
}

// startAttacked starts n pods of an ordinary build, limited to attackAddressSpace each, on one Redis of their own.
// The honest device is connected to the first pod; its caller uses all of them in turn.
func startAttacked(t *testing.T, n int, settings ...string) *arena {
	t.Helper()
	return startBeside(t, startLimited(t, plainProgram(t)), n, settings...)
}

// startBeside is startAttacked for a control pod that runs already.
func startBeside(t *testing.T, control *pod, n int, settings ...string) *arena {
	t.Helper()
	program := plainProgram(t)
	a := &arena{redis: redistest.Start(t), control: control}
	settings = append([]string{"FARHAND_REDIS_URL=" + a.redis.URL(), redisMayStall}, settings...)
	for range n {
		a.pods = append(a.pods, startLimited(t, program, settings...))
	}
	for _, url := range []string{a.pods[0].url, a.control.url} {
		device := start(t, []string{"FARHAND_TOKEN=" + fleetToken}, program, "device", "--server", url, "--session",
			"honest", "--tools", "echo")
		eventually(t, waitLimit, "the honest device is connected", func() bool {
			return strings.Contains(device.out.String(), "session honest offers echo")
		})
	}
	return a
}

// startLimited starts a pod that the kernel gives no more than attackAddressSpace.
func startLimited(t *testing.T, program string, settings ...string) *pod {
	t.Helper()
	limited := filepath.Join(t.TempDir(), "limited")
	script := fmt.Sprintf("#!/bin/sh\nulimit -v %d\nexec '%s' \"$@\"\n", attackAddressSpace, program)
	if err := os.WriteFile(limited, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return startProgram(t, limited, testkit.FreeAddr(t), settings...)
}

// buildPlain builds the program and the honest caller once without the race detector, whose shadow memory fits in no
// limit. They lie beside farhandBinary and are removed with it.
var buildPlain = sync.OnceValues(func() (string, error) {
	program := farhandBinary + "-plain"
	for output, source := range map[string]string{program: ".",
		filepath.Join(filepath.Dir(program), "honest"): "./testdata/honest"} {
		if out, err := exec.Command("go", "build", "-ldflags=-w", "-o", output, source).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w\n%s", err, out)
		}
	}
	return program, nil
})

func plainProgram(t *testing.T) string {
	t.Helper()
	program, err := buildPlain()
	if err != nil {
		t.Fatalf("build: %v", err)
	}
	return program
}

// under runs an attack while the honest caller works, and then checks what must hold after every attack: the pods run,
// no honest call failed (see tooManyLate), and the slowest of a hundred took less than honestP99. On a machine of which
// strangers leave this test a half everything takes twice as long and waits for twice as much: a quarter of the share
// is sixteen times the limit. The attack ends when it returns, or should when its context does.
func (a *arena) under(t *testing.T, limit time.Duration, attack func(ctx context.Context)) {
	t.Helper()
	a.idle = a.idle[:0]
	for _, p := range a.pods {
		a.idle = append(a.idle, residentPeak(t, p, true))
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var urls []string
	for _, p := range a.pods {
		urls = append(urls, p.url)
	}
	before := lookAtMachine(t)
	honest, control := startHonest(t, urls...), startHonest(t, a.control.url)
	attack(ctx)
	honest.stop(t)
	control.stop(t)
	left := lookAtMachine(t).leftSince(before)
	for i, p := range a.pods {
		select {
		case <-p.done:
			t.Fatalf("pod %d ended: %v", i, p.err)
		default:
		}
	}
	honest.wantServed(t, left)
	p99, reference := honest.p99(), control.p99()
	limit = patienceFor(reference, left)
	t.Logf("honest calls: %d, p99 %v (%v at a pod nobody attacks); %.0f %% of the machine were left to this test",
		len(honest.Took), p99, reference, 100*left)
	if p99 > limit {
		t.Errorf("honest calls: p99 %v, want at most %v", p99, limit)
	}
}

// patienceFor returns what the slowest of a hundred honest calls may take, by what it takes at the control and by the
// share of the machine that is left to the test.
func patienceFor(reference time.Duration, left float64) time.Duration {
	return time.Duration(float64(max(honestP99, honestFactor*reference)) / (left * left)).Round(time.Millisecond)
}

// peakBelow checks that no pod grew by more than this many MiB over what it had before the attack.
func (a *arena) peakBelow(t *testing.T, mib int) {
	t.Helper()
	for i, p := range a.pods {
		grown := (residentPeak(t, p, false) - a.idle[i]) >> 10
		t.Logf("pod %d: peak %d MiB over idle", i, grown)
		if grown > mib {
			t.Errorf("pod %d: peak %d MiB over idle, want at most %d", i, grown, mib)
		}
	}
}

// calmWithin checks that every pod stops burning soon: there comes a half second in which it takes less than a quarter
// of a core, and until then it has not taken more processor time than two cores have within the limit. Time on the
// clock is not judged: on a busy machine a pod waits for its processor.
func (a *arena) calmWithin(t *testing.T, limit time.Duration) {
	t.Helper()
	const window = 500 * time.Millisecond
	for i, p := range a.pods {
		began := cpuTime(t, p)
		before := began
		took := eventually(t, limit+3*waitLimit, fmt.Sprintf("pod %d is calm", i), func() bool {
			waitFor(t.Context(), window)
			now := cpuTime(t, p)
			used := now - before
			before = now
			return used < window/4
		})
		if burned := before - began; took > limit+2*window && burned > 2*limit {
			t.Errorf("pod %d burned %v of processor time in %v after the attack, want at most %v", i, burned, took,
				2*limit)
		}
	}
}

// redisBytes returns how much memory the data in Redis takes.
func (a *arena) redisBytes(t *testing.T) int {
	t.Helper()
	info, err := a.redis.Command("INFO", "memory")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "used_memory_dataset:")
	line, _, _ := strings.Cut(rest, "\r")
	n, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("INFO memory: %v", err)
	}
	return n
}

// residentPeak returns the most KiB of memory the pod has had resident, since the last reset if there was one.
func residentPeak(t *testing.T, p *pod, reset bool) int {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/", p.cmd.Process.Pid)
	if reset {
		if err := os.WriteFile(dir+"clear_refs", []byte("5"), 0); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(dir + "status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestAttackHarness: with no attacker all is well, and the figures are there to be looked at.
func TestAttackHarness(t *testing.T) {
	a := startAttacked(t, 2)
	a.under(t, 2*time.Second, func(ctx context.Context) { <-ctx.Done() })
	a.peakBelow(t, 50)
	a.calmWithin(t, 5*time.Second)
	if n := a.redisBytes(t); n <= 0 {
		t.Errorf("Redis holds %d bytes", n)
	}
}

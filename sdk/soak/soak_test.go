// Package soak_test lets devices of each SDK serve two real pods that are killed and drained in turns, while callers
// call them over HTTP. A ledger of all that callers asked and devices did says whether a call ran twice, was answered
// twice, or lost an answer.
package soak_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/sdk/internal/driver"
)

var (
	chosen   = flag.String("sdks", "", "SDKs whose devices take part, separated by commas; empty: none")
	soakFor  = flag.Duration("for", 3*time.Second, "how long the pods are killed and drained; at least one of each")
	logLevel = flag.String("log", "warn", "log level of the pods; what they log of a call stands beside a broken rule")
	seed     = flag.Uint64("seed", 0, "seed of callers and faults; 0 draws one")
)

const (
	devicesOfSDK    = 2
	callersOfDevice = 2
)

func TestMain(m *testing.M) {
	if !driver.Main() {
		os.Exit(m.Run())
	}
}

func TestSoak(t *testing.T) {
	if *chosen == "" {
		t.Log("no SDK is chosen (-sdks), so there is nothing to do")
		return
	}
	f, _ := ownFleet(t, buildFarhand(t), redistest.Single(t))
	soak(t, f, strings.Split(*chosen, ","))
}

// soak lets devices of the SDKs serve a fleet while it is broken and called, audits the ledger and returns it.
func soak(t *testing.T, f *fleet, sdks []string) *ledger {
	t.Helper()
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("seed %d", *seed)
	book := newLedger()
	book.storeDies = f.storeDies
	devices := startDevices(t, book, f, sdks)
	f.await(t, devices)

	ctx, stop := context.WithTimeout(t.Context(), *soakFor)
	defer stop()
	over := make(chan struct{}) // closed when the faults end
	var calling sync.WaitGroup
	for i, d := range devices {
		for j := range callersOfDevice {
			c := &caller{
				t: t, book: book, fleet: f, device: d, all: devices,
				random: rand.New(rand.NewPCG(*seed, uint64(i*callersOfDevice+j+1))),
			}
			calling.Go(func() { c.run(over) })
		}
	}
	faults := f.breakDown(ctx, t, book, devices, rand.New(rand.NewPCG(*seed, 0)))
	close(over)
	calling.Wait()
	book.settle(t, f)
	for _, d := range devices {
		d.stop(t)
	}
	f.stop(t)
	report(t, f, book, devices, faults)
	return book
}

// buildFarhand builds the program with the race detector.
func buildFarhand(t *testing.T) string {
	t.Helper()
	return buildIn(t, "../..", "-race")
}

// buildIn builds the program from the sources in a folder, with these flags.
func buildIn(t *testing.T, dir string, flags ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "farhand")
	build := exec.Command("go", append(append([]string{"build", "-buildvcs=false", "-ldflags=-w"}, flags...),
		"-o", program, "./cmd/farhand")...)
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return program
}

// device is a program with an SDK that is one device.
type device struct {
	*driver.Device
	sdk, session string
	ended        chan struct{} // closed when the device has stopped

	mu          sync.Mutex
	connections int
	resumed     int
}

// startDevices starts the devices of SDKs.
func startDevices(t *testing.T, book *ledger, f *fleet, names []string) (devices []*device) {
	t.Helper()
	for _, s := range driver.SDKs(func() string { return driver.BuildTypeScript(t) }) {
		if !slices.Contains(names, s.Flag) {
			continue
		}
		names = slices.DeleteFunc(names, func(name string) bool { return name == s.Flag })
		command := s.Prepare(t)
		for i := range devicesOfSDK {
			session := fmt.Sprintf("%s-%d", s.Flag, i)
			store := filepath.Join(t.TempDir(), session+".jsonl")
			host, _ := driver.Start(t, func() *exec.Cmd {
				cmd := command(store)
				cmd.Env = append(cmd.Environ(), f.devices...)
				return cmd
			})
			d := &device{
				Device: &driver.Device{Host: host}, sdk: s.Name, session: session, ended: make(chan struct{}),
			}
			go d.follow(t, book)
			d.Command(t, map[string]any{"do": "start", "url": f.url, "options": map[string]any{
				"session": session, "device_id": session, "token": f.token, "tools": []string{"ledger"}, "store": true,
			}})
			devices = append(devices, d)
		}
	}
	if len(names) > 0 {
		t.Fatalf("-sdks names %q, which have no driver", names)
	}
	return devices
}

// follow writes down what the device reports, until it has stopped.
func (d *device) follow(t *testing.T, book *ledger) {
	defer close(d.ended)
	for {
		var report map[string]any
		select {
		case report = <-d.Reports():
		case <-t.Context().Done():
			return
		}
		call, _ := report["call"].(string)
		if text, ok := report["began"].(string); ok {
			book.ran(text, call)
		}
		if text, ok := report["gave"].(string); ok {
			book.answered(text, call)
		}
		switch report["state"] {
		case "connected":
			d.mu.Lock()
			d.connections++
			if resumed, _ := report["resumed"].(bool); resumed {
				d.resumed++
			}
			d.mu.Unlock()
		case "refused":
			t.Errorf("%s gave up: %v", d.session, report["why"])
			return
		case "closed":
			return
		}
	}
}

// stop stops the device, and waits until it has.
func (d *device) stop(t *testing.T) {
	t.Helper()
	d.Command(t, map[string]any{"do": "stop"})
	testkit.Receive(t, "the end of "+d.session, d.ended)
}

// report prints the table, and fails the test for what is wrong.
func report(t *testing.T, f *fleet, book *ledger, devices []*device, faults map[string]int) {
	t.Helper()
	found := book.audit()
	for _, v := range found[:min(len(found), 10)] {
		lines := []string{book.history(v.text)}
		for _, id := range book.callsOf(v.text) {
			lines = append(lines, f.logged(id)...)
		}
		lines = append(lines, f.logged("session="+strings.Fields(v.text)[1]+" ")...)
		t.Errorf("%s: %s", v.rule, strings.Join(lines, "\n    "))
	}
	if len(found) > 10 {
		t.Errorf("%d more", len(found)-10)
	}
	var table strings.Builder
	table.WriteString("| SDK | connections | resumed | calls | answered | after a retry | late | not dispatched | " +
		"caller's pod gone: in the record, not | ran twice | answered twice | answers lost |\n" +
		"|" + strings.Repeat(" --- |", 12) + "\n")
	var sdks []string
	for _, d := range devices {
		if !slices.Contains(sdks, d.sdk) {
			sdks = append(sdks, d.sdk)
		}
	}
	for _, sdk := range sdks {
		connections, resumed := 0, 0
		for _, d := range devices {
			if d.sdk == sdk {
				connections, resumed = connections+d.connections, resumed+d.resumed
			}
		}
		n := book.count(sdk, found)
		fmt.Fprintf(&table, "| %s | %d | %d | %d | %d | %d | %d | %d | %d, %d | %d | %d | %d |\n", sdk, connections,
			resumed, n.calls, n.heard, n.retried, n.late, n.notDispatched, n.orphansKept, n.orphans, n.ranTwice,
			n.answeredTwice, n.lost)
		if n.heard == 0 {
			t.Errorf("no call of %s was answered: that was no load", sdk)
		}
	}
	t.Logf("%v: killed %d times, drained %d times\n%s\n%s", *soakFor, faults["killed"], faults["drained"],
		table.String(), book.outcomes())
}

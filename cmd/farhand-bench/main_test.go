package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/sandbox/host"
	"github.com/farhand/farhand/cmd/farhand/bench"
	"github.com/farhand/farhand/cmd/farhand/capacity"
)

// program is what pods and references of these tests run, built by TestMain.
var program string

// self is what Main of package host returned to TestMain.
var self host.Program

func TestMain(m *testing.M) {
	self = host.Main()
	dir, err := os.MkdirTemp("", "farhand-bench-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	program = filepath.Join(dir, "farhand-bench")
	build := exec.Command("go", "build", "-ldflags=-w", "-o", program, ".")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// quick are options for a run that shows that everything works, not how fast.
func quick(t *testing.T) (o *options, out *bytes.Buffer) {
	t.Helper()
	out = &bytes.Buffer{}
	all := defaultOptions()
	o = &all
	o.Quick, o.Program, o.Self = true, program, self
	o.Out, o.Err = out, writerFunc(func(p []byte) (int, error) { t.Logf("%s", p); return len(p), nil })
	return o, out
}

// filled are options as a run has them.
func filled(t *testing.T, o *options) *options {
	t.Helper()
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	return o
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// results is what --json prints.
type results struct {
	Figures []struct {
		Side, Route string
		Callers     int
		Calls       int64
		PerSecond   float64       `json:"calls_per_second"`
		P50         time.Duration `json:"p50_ns"`
		P99         time.Duration `json:"p99_ns"`
		Errors      map[string]int64
		Usage       []bench.Usage
		Found       *bench.Found
		Redis       bench.RedisUse
		AllCalls    int64 `json:"all_calls"`
	}
	Targets []verdict
}

// plausible fails the test unless every line has calls, no errors, and times in order.
func (r results) plausible(t *testing.T, lines int) {
	t.Helper()
	if len(r.Figures) != lines {
		t.Errorf("%d lines, want %d", len(r.Figures), lines)
	}
	for _, f := range r.Figures {
		if f.Calls == 0 || f.PerSecond <= 0 || f.P50 <= 0 || f.P50 > f.P99 || len(f.Errors) > 0 {
			t.Errorf("implausible: %+v", f)
		}
		if len(f.Usage) != 3 && exists("/proc/self/stat") {
			t.Errorf("use of two pods and of Redis expected: %+v", f.Usage)
		}
		if f.AllCalls < f.Calls || f.Route == bench.RouteCross && (f.Found == nil || f.Found.Remembered <= 0 ||
			f.Found.EnvelopesPerPacket < 1 || f.Found.RepliesPerPacket < 1 || f.Redis["publish"].Count == 0) {
			t.Errorf("calls across pods find routes and share packets: %d calls, %+v, %v", f.AllCalls, f.Found, f.Redis)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestRunningPods measures pods as `farhand bench` does, which others have started.
func TestRunningPods(t *testing.T) {
	o, out := quick(t)
	f, err := filled(t, o).startFleet(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	o.Pods, o.Token, o.Redis = urls(f.pods), benchToken, f.redis.url
	o.PIDs = pids(f.pods)
	o.Callers, o.Devices, o.Spread = []int{1, 8}, quickDevices, bench.SpreadUniform
	if err := bench.Run(t.Context(), o.Options, true); err != nil {
		t.Fatal(err)
	}
	var r results
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r.plausible(t, 4)
}

// TestTargets: every row can be measured, and the profiles are written. Nothing is said about how the rows turn out.
func TestTargets(t *testing.T) {
	o, out := quick(t)
	o.Profiles = t.TempDir()
	if _, err := measureTargets(t.Context(), filled(t, o), true); err != nil {
		t.Fatal(err)
	}
	var r results
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	seen := make(map[string]bool)
	for _, v := range r.Targets {
		seen[v.Row] = true
		if v.What == "" || v.Target == "-" || v.Measured == "" {
			t.Errorf("incomplete: %+v", v)
		}
	}
	for _, row := range rowNames() {
		if !seen[row] {
			t.Errorf("no verdict on %s", row)
		}
	}
	for _, name := range []string{
		"call-uniform-16-pod0.cpu.pprof", "call-pinned-16-pod1.allocs.pprof", "idle-pod0.allocs.pprof",
	} {
		if info, err := os.Stat(filepath.Join(o.Profiles, name)); err != nil || info.Size() == 0 {
			t.Errorf("profile %s: %v", name, err)
		}
	}
}

func TestGrowth(t *testing.T) {
	o, out := quick(t)
	if err := measureGrowth(t.Context(), filled(t, o)); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n| --- |"); n != 4 {
		t.Errorf("%d tables:\n%s", n, out)
	}
	var header string
	for line := range strings.Lines(out.String()) {
		switch {
		case !strings.HasPrefix(line, "|"):
			header = ""
		case header == "":
			header = line
			if strings.Contains(line, "calls/s") && !strings.Contains(line, "| errors |") {
				t.Errorf("calls are measured, and their errors not shown: %s", line)
			}
		case strings.Count(line, "|") != strings.Count(header, "|"):
			t.Errorf("%sdoes not fit\n%s", line, header)
		}
	}
}

// TestBothSidesCollectGarbageAlike: figures of the reference are only worth something if what differs is the program.
func TestBothSidesCollectGarbageAlike(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	o, _ := quick(t)
	f, err := filled(t, o).startFleet(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if _, err := f.addReferences(t.Context(), 1, true); err != nil {
		t.Fatal(err)
	}
	const floor = 32 << 20 // counts as in use
	for i, name := range []string{"farhand", "reference"} {
		m, err := f.pods[i].memory()
		if err != nil {
			t.Fatal(err)
		}
		if m.Heap < floor {
			t.Errorf("%s: %d bytes in use, less than the floor between two collections", name, m.Heap)
		}
	}
}

func TestRowsThatDoNotExist(t *testing.T) {
	t.Parallel()
	if err := (&options{Only: []string{"speed"}}).complete(); err == nil ||
		!strings.Contains(err.Error(), "router-p50") {
		t.Errorf("%v, want the rows there are", err)
	}
}

// TestConstantsAreWritten: a quick run writes a file with every cost. Its figures mean nothing.
func TestConstantsAreWritten(t *testing.T) {
	o, _ := quick(t)
	path := filepath.Join(t.TempDir(), "constants.json")
	if err := writeConstants(t.Context(), filled(t, o), path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	var c capacity.Constants
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil || c.CallPod <= 0 || c.CallRedis <= 0 || c.ConnectPod <= 0 || c.ConnectRedis <= 0 ||
		c.RefreshRedis <= 0 || c.Machine == "" || c.Date == "" {
		t.Errorf("%+v, %v\n%s", c, err, text)
	}
}

package bench

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
)

// program is the binary the fleets of these tests are made of, built by TestMain.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "farhand-bench-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	program = filepath.Join(dir, "farhand")
	build := exec.Command("go", "build", "-o", program, "..")
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
func quick(t *testing.T) (o Options, out *bytes.Buffer) {
	out = &bytes.Buffer{}
	return Options{
		Fleet: 2, Quick: true, Program: program, Out: out, Err: writerFunc(func(p []byte) (int, error) { t.Logf("%s", p); return len(p), nil }),
	}, out
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
		Usage       []Usage
	}
	Targets []Verdict
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
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestMatrixOfAFleet(t *testing.T) {
	o, out := quick(t)
	o.Callers = []int{1, 8}
	if met, err := Matrix(t.Context(), o, true); err != nil || !met {
		t.Fatal(met, err)
	}
	var r results
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r.plausible(t, 4)
}

// TestMatrixOfRunningPods: the pods were started by somebody else.
func TestMatrixOfRunningPods(t *testing.T) {
	o, _ := quick(t)
	f, err := o.startFleet(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	o, out := quick(t)
	o.Fleet, o.Pods, o.Token, o.Redis = 0, urls(f.pods), benchToken, f.redis.url
	o.PIDs = []int{f.pods[0].pid(), f.pods[1].pid()}
	o.Callers, o.Routes = []int{4}, []string{RouteCross}
	if _, err := Matrix(t.Context(), o, true); err != nil {
		t.Fatal(err)
	}
	var r results
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r.plausible(t, 1)
}

// TestTargets: every row can be measured, and the profiles are written. Nothing is said about how the rows turn out.
func TestTargets(t *testing.T) {
	o, out := quick(t)
	o.Reference, o.Callers, o.Profiles = true, []int{1}, t.TempDir()
	if _, err := Matrix(t.Context(), o, true); err != nil {
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
	for _, name := range []string{"call-pod0.cpu.pprof", "call-pod1.allocs.pprof", "idle-pod0.allocs.pprof"} {
		if info, err := os.Stat(filepath.Join(o.Profiles, name)); err != nil || info.Size() == 0 {
			t.Errorf("profile %s: %v", name, err)
		}
	}
}

func TestGrowth(t *testing.T) {
	o, out := quick(t)
	if err := Growth(t.Context(), o); err != nil {
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
	f, err := o.startFleet(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if _, err := f.addReferences(t.Context(), 1); err != nil {
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

func TestOptionsThatMakeNoSense(t *testing.T) {
	for want, o := range map[string]Options{
		"--pods":      {},
		"two pods":    {Fleet: 1},
		"http://":     {Pods: []string{"https://a:1", "https://b:1"}},
		"--callers":   {Fleet: 2, Callers: []int{0}},
		"--route":     {Fleet: 2, Routes: []string{"nearby"}},
		"--only":      {Fleet: 2, Only: []string{"speed"}},
		"--payload":   {Fleet: 2, Payload: 2 << 20},
		"--reference": {Pods: []string{"http://a:1", "http://b:1"}, Reference: true},
	} {
		if err := o.Fill(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want a word about %s", o, err, want)
		}
	}
}

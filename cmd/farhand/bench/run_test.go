package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// startPod builds farhand and runs a pod without Redis until the test ends.
func startPod(t *testing.T) (url string, pid int) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "farhand")
	if out, err := exec.Command("go", "build", "-ldflags=-w", "-o", program, "..").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	var log bytes.Buffer
	pod := exec.Command(program, "serve")
	pod.Env, pod.Stderr = []string{"FARHAND_ADDR=" + addr, "FARHAND_DATA_DIR=off"}, &log
	if err := pod.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = pod.Process.Kill()
		_ = pod.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return "http://" + addr, pod.Process.Pid
			}
		} else if ctx.Err() != nil {
			t.Fatalf("the pod is not ready: %v", err)
		}
	}
}

// quickly are options for a run that shows that everything works, not how fast.
func quickly(url string, out *bytes.Buffer) Options {
	o := DefaultOptions()
	o.Pods, o.Routes, o.Devices, o.Callers, o.Repeat = []string{url + "/"}, []string{RouteLocal}, 4, []int{1, 8}, 2
	o.Duration, o.Grace, o.Out, o.Err = 200*time.Millisecond, 30*time.Second, out, out
	return o
}

func TestRun(t *testing.T) {
	url, pid := startPod(t)
	var out bytes.Buffer
	o := quickly(url, &out)
	o.Err, o.PIDs = &bytes.Buffer{}, []int{pid}
	if err := Run(t.Context(), o, true); err != nil {
		t.Fatal(err)
	}
	var r struct{ Figures []JSONFigures }
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if len(r.Figures) != 2 {
		t.Errorf("%d lines, want 2", len(r.Figures))
	}
	for i, f := range r.Figures {
		counted := f.Calls > 0 && f.PerSecond > 0 && f.Failed() == 0 && f.Callers == o.Callers[i]
		if !counted || f.P50 <= 0 || f.P50 > f.P99 {
			t.Errorf("implausible: %+v", f)
		}
	}
	out.Reset()
	o = quickly(url, &out)
	o.Callers = []int{2}
	o.Terminal = true
	if err := Run(t.Context(), o, false); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "route") || !strings.Contains(text, "local") ||
		!strings.Contains(text, "2 callers") {
		t.Errorf("printed %s", text)
	}
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	two := []string{"http://a:1", "http://b:1"}
	for want, change := range map[string]func(o *Options){
		"--pods":                 func(o *Options) { o.Pods = nil },
		"two pods":               func(o *Options) { o.Pods = two[:1] },
		"http://":                func(o *Options) { o.Pods = []string{"https://a:1", "https://b:1"} },
		"--callers":              func(o *Options) { o.Callers = []int{0} },
		"--route":                func(o *Options) { o.Routes = []string{"nearby"} },
		"--devices":              func(o *Options) { o.Devices = 0 },
		"--payload":              func(o *Options) { o.Payload = 2 << 20 },
		strconv.Itoa(MaxPayload): func(o *Options) { o.Payload = MaxPayload + 1 },
		"must be http://":        func(o *Options) { o.Pods = []string{"a"} },
	} {
		o := DefaultOptions()
		o.Pods = slices.Clone(two)
		change(&o)
		if err := Run(t.Context(), o, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want a word about %s", o, err, want)
		}
	}
}

func TestReadProcess(t *testing.T) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		use, err := ReadProcess(t.Context(), os.Getpid())
		if err != nil || use.Resident < 1<<20 || use.Resident > 1<<40 {
			t.Fatalf("%+v, %v", use, err)
		}
		if use.CPU >= 20*time.Millisecond {
			return
		}
	}
	t.Error("a minute of work took no processor time")
}

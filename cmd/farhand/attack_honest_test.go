package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// honestAsk is requests that follow each other, as testdata/honest reads them.
type honestAsk struct {
	Name  string       `json:"name"`
	Steps []honestStep `json:"steps"`
}

// honestStep is one request; testdata/honest says what its fields mean.
type honestStep struct {
	Method string            `json:"method"`
	URL    string            `json:"url"`
	Body   string            `json:"body,omitempty"`
	Header map[string]string `json:"header,omitempty"`
	Status int               `json:"status,omitempty"`
	Leaves bool              `json:"leaves,omitempty"`
}

// honestMade is a request that the honest caller made.
type honestMade struct {
	Ask    string
	Took   time.Duration
	Failed string
}

// honestCaller is a program that makes requests all the time and notes how it was served.
type honestCaller struct {
	cmd    *exec.Cmd
	input  io.Closer
	output bytes.Buffer

	Made   []honestMade
	Took   []time.Duration
	Failed []string
}

// startHonest starts a caller of the honest device that uses the pods at these addresses in turn.
func startHonest(t *testing.T, urls ...string) *honestCaller {
	t.Helper()
	var asks []honestAsk
	for _, url := range urls {
		asks = append(asks, honestAsk{Name: "call", Steps: []honestStep{{Method: http.MethodPost, Status: http.StatusOK,
			URL: url + "/api/sessions/honest/tools/echo/call", Body: `{"args":{"text":"here"}}`}}})
	}
	return startAsking(t, asks)
}

// startAsking starts a caller that makes these requests in turn. Variables are those of testdata/honest.
func startAsking(t *testing.T, asks []honestAsk, variables ...string) *honestCaller {
	t.Helper()
	text, err := json.Marshal(asks)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "asks.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	h := &honestCaller{cmd: exec.Command(filepath.Join(filepath.Dir(plainProgram(t)), "honest"), file)}
	h.cmd.Env = append(append(os.Environ(), "HONEST_TOKEN="+fleetToken), variables...)
	h.cmd.Stdout, h.cmd.Stderr = &h.output, os.Stderr
	input, err := h.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.input = input
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after a test that failed in its attack
		if h.cmd.ProcessState == nil {
			_ = h.cmd.Process.Kill()
			_ = h.cmd.Wait()
		}
	})
	return h
}

// stop ends the caller and reads what it noted.
func (h *honestCaller) stop(t *testing.T) {
	t.Helper()
	_ = h.input.Close()
	if err := h.cmd.Wait(); err != nil {
		t.Fatalf("honest caller: %v", err)
	}
	if err := json.Unmarshal(h.output.Bytes(), &h.Made); err != nil {
		t.Fatalf("honest caller: %v", err)
	}
	for _, m := range h.Made {
		h.Took = append(h.Took, m.Took)
		if m.Failed != "" {
			h.Failed = append(h.Failed, m.Failed)
		}
	}
}

// wantServed wants no request to have failed (see tooManyLate).
func (h *honestCaller) wantServed(t *testing.T, left float64) {
	t.Helper()
	failed := slices.DeleteFunc(slices.Clone(h.Failed),
		func(text string) bool { return strings.Contains(text, `"store_unavailable"`) })
	late := len(h.Failed) - len(failed)
	if len(failed) > 0 || tooManyLate(late, len(h.Took), left) {
		t.Errorf("%d of %d honest requests failed, the first: %s", len(h.Failed), len(h.Took), append(failed,
			h.Failed...)[0])
	}
}

func (h *honestCaller) p99() time.Duration { return p99(h.Took) }

// of returns how long the requests of an ask took.
func (h *honestCaller) of(ask string) (took []time.Duration) {
	for _, m := range h.Made {
		if m.Ask == ask {
			took = append(took, m.Took)
		}
	}
	return took
}

// p99 returns what the slowest of a hundred took, and zero of none.
func p99(took []time.Duration) time.Duration {
	if len(took) == 0 {
		return 0
	}
	took = slices.Sorted(slices.Values(took))
	return took[len(took)*99/100].Round(time.Millisecond)
}

// table logs the figures of each ask beside those of a caller that nobody attacks.
func (h *honestCaller) table(t *testing.T, asks []honestAsk, control *honestCaller) {
	t.Helper()
	lines := fmt.Sprintf("%-12s %8s %10s %10s", "request", "number", "p99", "control")
	seen := map[string]bool{}
	for _, a := range asks {
		if took := h.of(a.Name); !seen[a.Name] {
			seen[a.Name] = true
			lines += fmt.Sprintf("\n%-12s %8d %10v %10v", a.Name, len(took), p99(took), p99(control.of(a.Name)))
		}
	}
	t.Logf("%s\n%-12s %8d %10v %10v", lines, "all", len(h.Took), h.p99(), control.p99())
}

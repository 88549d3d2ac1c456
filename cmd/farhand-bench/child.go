package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
	"runtime/debug"
	"time"
)

// memoryUse is a child's report of its own memory, after garbage collection and returning free memory to the system.
type memoryUse struct {
	Heap       uint64 `json:"heap"`   // bytes in use
	Stacks     uint64 `json:"stacks"` // bytes in use
	Goroutines int    `json:"goroutines"`
}

// runChild runs serve as a child of a measurement. It prints where it serves and where it reports about itself, and
// ends when its standard input ends.
func runChild(
	ctx context.Context, in io.Reader, out io.Writer, serve func(ctx context.Context, ready func(addr string)) error,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, in)
	}()
	listener, err := net.Listen("tcp", anyAddr)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /memory", serveMemory)
	mux.HandleFunc("GET /profile", pprof.Profile)
	mux.Handle("GET /heap", pprof.Handler("heap"))
	about := &http.Server{Handler: mux}
	defer about.Close()
	go func() { _ = about.Serve(listener) }()
	return serve(ctx, func(addr string) { fmt.Fprintln(out, "serving", addr, listener.Addr()) })
}

// serveMemory reports the memory in use after everything free was released.
func serveMemory(w http.ResponseWriter, _ *http.Request) {
	runtime.GC() // twice: objects with finalizers are freed by the second
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	_ = json.NewEncoder(w).Encode(memoryUse{
		Heap: m.HeapInuse, Stacks: m.StackInuse, Goroutines: runtime.NumGoroutine(),
	})
}

// askTimeout bounds a request for a child's report. A profile takes as long as it covers.
const askTimeout = time.Minute

// ask requests a report from a child.
func (c *child) ask(what string) ([]byte, error) {
	resp, err := (&http.Client{Timeout: askTimeout}).Get(c.about + what)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return body, err
}

// memory makes the child collect its garbage and returns its report.
func (c *child) memory() (m memoryUse, err error) {
	text, err := c.ask("/memory")
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(text, &m)
}

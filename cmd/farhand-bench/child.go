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

// memoryUse is what a child says about its own memory, after it has collected its garbage and given what is free back.
type memoryUse struct {
	Heap       uint64 `json:"heap"`   // bytes in use
	Stacks     uint64 `json:"stacks"` // bytes in use
	Goroutines int    `json:"goroutines"`
}

// runChild runs serve as a child of a measurement. It says where it serves and where it can be asked about itself, and
// ends when its standard input does.
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

// serveMemory answers with what is in use once everything that can be freed is freed.
func serveMemory(w http.ResponseWriter, _ *http.Request) {
	runtime.GC() // twice: what has a finalizer goes with the second
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	_ = json.NewEncoder(w).Encode(memoryUse{
		Heap: m.HeapInuse, Stacks: m.StackInuse, Goroutines: runtime.NumGoroutine(),
	})
}

// askTimeout bounds what a child is asked about itself. A profile takes as long as it covers.
const askTimeout = time.Minute

// ask asks a child about itself.
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

// memory has the child collect its garbage.
func (c *child) memory() (m memoryUse, err error) {
	text, err := c.ask("/memory")
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(text, &m)
}

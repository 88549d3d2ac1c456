package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
)

// memoryUse is what a child says about its own memory, after it has collected its garbage and given what is free back.
type memoryUse struct {
	Heap       uint64 `json:"heap"`   // bytes in use
	Stacks     uint64 `json:"stacks"` // bytes in use
	Goroutines int    `json:"goroutines"`
}

// runChild runs serve as a child of a measurement: it says when it is serving, answers what it is asked on its
// standard input, and ends when that ends. It can be asked for a CPU profile of the time between "profile" and "stop",
// with what was allocated before and after: they are written to the directory profiles, under the name it is given.
func runChild(
	ctx context.Context, in io.Reader, out io.Writer, profiles string,
	serve func(ctx context.Context, ready func()) error,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := childSide{out: out, dir: profiles}
	go func() {
		defer cancel()
		for lines := bufio.NewScanner(in); lines.Scan(); {
			if err := c.handle(lines.Text()); err != nil {
				fmt.Fprintln(os.Stderr, "bench child:", err)
				return // who asked waits for an answer; the end of this process is one
			}
		}
	}()
	return serve(ctx, func() { fmt.Fprintln(out, "serving") })
}

// childSide is the child's end of the conversation with who started it.
type childSide struct {
	out  io.Writer
	dir  string
	name string
	cpu  *os.File
}

func (c *childSide) handle(command string) error {
	command, c.name = cutName(command, c.name)
	switch command {
	case "memory":
		return c.memory()
	case "profile":
		return c.startProfile()
	case "stop":
		return c.stopProfile()
	default:
		return fmt.Errorf("unknown command %q", command)
	}
}

// cutName splits a command from the name after it, if there is one.
func cutName(line, before string) (command, name string) {
	if command, name, ok := strings.Cut(line, " "); ok {
		return command, filepath.Base(name)
	}
	return line, before
}

// memory answers with what is in use once everything that can be freed is freed.
func (c *childSide) memory() error {
	runtime.GC() // twice: what has a finalizer goes with the second
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return json.NewEncoder(c.out).Encode(memoryUse{Heap: m.HeapInuse, Stacks: m.StackInuse, Goroutines: runtime.NumGoroutine()})
}

func (c *childSide) startProfile() error {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(c.dir, c.name+".cpu.pprof"))
	if err != nil {
		return err
	}
	c.cpu = f
	if err := c.writeAllocations("before"); err != nil {
		return err
	}
	return pprof.StartCPUProfile(f)
}

func (c *childSide) stopProfile() error {
	pprof.StopCPUProfile()
	if c.cpu != nil {
		_ = c.cpu.Close()
	}
	if err := c.writeAllocations("allocs"); err != nil {
		return err
	}
	_, err := fmt.Fprintln(c.out, "profiled")
	return err
}

// writeAllocations writes what was allocated since the start of the process. Two of them, subtracted with
// `go tool pprof -base`, are what was allocated in between.
func (c *childSide) writeAllocations(what string) error {
	f, err := os.Create(filepath.Join(c.dir, c.name+"."+what+".pprof"))
	if err != nil {
		return err
	}
	defer f.Close()
	runtime.GC() // the profile is complete up to the last collection
	return pprof.Lookup("allocs").WriteTo(f, 0)
}

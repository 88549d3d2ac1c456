package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/sandbox/host"
	"github.com/farhand/farhand/cmd/farhand/bench"
)

// options say what is measured and how.
type options struct {
	bench.Options

	Fleet    int      // pods of the matrix
	Only     []string // rows of the target table; empty: all
	Quick    bool     // fractions of a second and small numbers: tests that it runs, not how fast
	Profiles string   // directory for profiles of the pods; empty: none

	Program string       // this program, for pods and references
	Self    host.Program // the same, for engines
}

// defaultOptions returns options that lack only Program, Self, Out and Err.
func defaultOptions() options {
	o := options{Options: bench.DefaultOptions(), Fleet: 2}
	o.Repeat = 5
	o.Devices, o.Spread, o.Callers = 0, "", nil // the target table sets them
	return o
}

// complete sets options that depend on others, and reports errors in them.
func (o *options) complete() error {
	if o.Quick {
		o.Duration, o.Repeat, o.Grace = 200*time.Millisecond, 1, 30*time.Second
	}
	o.Fleet = max(o.Fleet, 2)
	for _, row := range o.Only {
		if !slices.Contains(rowNames(), row) {
			return fmt.Errorf("--only %s: there is no such row; there are %s", row, strings.Join(rowNames(), ", "))
		}
	}
	devices := o.Devices
	o.Devices = cmp.Or(devices, workloads[0].devices)
	err := o.Check()
	o.Devices = devices
	return err
}

// quickDevices is the maximum of devices in a quick run of calls.
const quickDevices = 16

// limited returns the number of devices to call, fewer in a quick run.
func (o *options) limited(devices int) int { return quickOr(o, min(devices, quickDevices), devices) }

// quickOr returns quick in a quick run, else size.
func quickOr[T any](o *options, quick, size T) T {
	if o.Quick {
		return quick
	}
	return size
}

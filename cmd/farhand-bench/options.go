package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/cmd/farhand/bench"
)

// options say what is measured and how.
type options struct {
	bench.Options

	Fleet    int      // pods of the matrix; default 2
	Only     []string // of the rows of the target table; empty: all
	Quick    bool     // fractions of a second and small numbers: does it run, not how fast
	Profiles string   // directory for profiles of the pods, of calls at 512 callers and of idle sessions; empty: none

	Program string // this program, for pods and references
}

// fill sets defaults and checks the rest.
func (o *options) fill() error {
	if o.Quick {
		o.Duration, o.Repeat, o.Grace = 200*time.Millisecond, 1, 30*time.Second
		if o.Devices == 0 || o.Devices > 16 {
			o.Devices = 16
		}
	}
	o.Fleet = max(o.Fleet, 2)
	for _, row := range o.Only {
		if !slices.ContainsFunc(rows, func(r targetRow) bool { return r.name == row }) {
			return fmt.Errorf("--only %s: there is no such row; there are %s", row, strings.Join(rowNames(), ", "))
		}
	}
	return o.Fill()
}

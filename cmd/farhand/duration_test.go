package main

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// The help shows a default, and none where zero means that there is none.
func TestDurationFlagInTheHelp(t *testing.T) {
	t.Parallel()
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	var none, day time.Duration
	durationVar(f, &none, "none", 0, "nothing")
	durationVar(f, &day, "day", 24*time.Hour, "a day")
	if help := f.FlagUsages(); strings.Count(help, "(default") != 1 || !strings.Contains(help, "(default 24h0m0s)") {
		t.Error(help)
	}
}

package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/farhand/farhand/internal/days"
)

// durationFlag is a flag whose value is a duration that may have days. It implements pflag.Value.
type durationFlag struct{ value *time.Duration }

// durationVar adds a flag that takes 90s, 24h or 30d.
func durationVar(f *pflag.FlagSet, value *time.Duration, name string, byDefault time.Duration, usage string) {
	*value = byDefault
	f.Var(durationFlag{value}, name, usage)
}

// String implements pflag.Value. Zero is written so that the help does not show it as a default.
func (d durationFlag) String() string {
	if *d.value == 0 {
		return "0"
	}
	return d.value.String()
}

// Set implements pflag.Value.
func (d durationFlag) Set(text string) (err error) {
	*d.value, err = days.Parse(text)
	return err
}

// Type implements pflag.Value.
func (durationFlag) Type() string { return "duration" }

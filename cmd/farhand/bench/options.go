package bench

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Routes of a call.
const (
	RouteLocal = "local" // the called pod holds the device
	RouteCross = "cross" // another pod holds it
)

// MaxPayload leaves room for the rest of a frame within the default limit.
const MaxPayload = 1_000_000

// Options say what is measured and how. DefaultOptions returns the defaults of Flags.
type Options struct {
	Pods  []string // URLs: the first holds the devices, the second gets the calls of route cross
	Token string   // of Pods
	Redis string   // URL; empty: its usage is not measured
	PIDs  []int    // of Pods, in their order

	Devices  int           // that are called
	Spread   Spread        // how callers choose among them
	Tools    int           // per device
	Payload  int           // bytes each way, besides a nonce
	Callers  []int         // one run for each
	Routes   []string      // local, cross
	Duration time.Duration // of one run, after Warmup
	Warmup   time.Duration // 0: a fifth of Duration
	Repeat   int           // runs of each, for the median
	Grace    time.Duration // extra time of a run without a success

	Out io.Writer // results
	Err io.Writer // progress
	// Terminal says that Err is a terminal: progress is then drawn on one line.
	Terminal bool
}

// DefaultOptions returns options that lack only Pods, Out and Err.
func DefaultOptions() Options {
	return Options{
		Devices: 128, Spread: SpreadUniform, Tools: 5, Payload: 64, Callers: []int{1, 64, 512},
		Routes: []string{RouteLocal, RouteCross}, Duration: 2 * time.Second, Repeat: 1,
	}
}

// Flags adds the flags of a measurement. Their defaults are the current options.
func (o *Options) Flags(f *pflag.FlagSet) {
	f.IntVar(&o.Devices, "devices", o.Devices, "devices to call")
	f.Var(&o.Spread, "spread", "how callers choose a device for each call: uniform, zipf or pinned")
	f.IntVar(&o.Tools, "tools", o.Tools, "tools of each device")
	f.IntSliceVar(&o.Callers, "callers", o.Callers, "concurrent callers, one run for each number")
	f.DurationVar(&o.Duration, "duration", o.Duration, "measured time of one run")
	f.DurationVar(&o.Warmup, "warmup", o.Warmup, "time before it; 0: a fifth of the duration")
	f.IntVar(&o.Payload, "payload", o.Payload, "bytes of a call, each way")
	f.IntVar(&o.Repeat, "repeat", o.Repeat, "runs of each measurement; the median is printed")
}

// Check completes the options and reports errors in them. It does not check the number of pods.
func (o *Options) Check() error {
	o.Warmup = cmp.Or(o.Warmup, o.Duration/5)
	for i, pod := range o.Pods {
		o.Pods[i] = strings.TrimSuffix(pod, "/")
		if u, err := url.Parse(o.Pods[i]); err != nil || u.Scheme != "http" || u.Port() == "" || u.Path != "" {
			const format = "--pods %s: must be http://host:port; TLS would dominate the figures"
			return fmt.Errorf(format, pod)
		}
	}
	for _, route := range o.Routes {
		if route != RouteLocal && route != RouteCross {
			return fmt.Errorf("--route %s: must be local or cross", route)
		}
	}
	if slices.ContainsFunc(o.Callers, func(n int) bool { return n < 1 }) {
		return errors.New("--callers: must be greater than zero")
	}
	if min(o.Devices, o.Tools, o.Repeat, int(o.Duration)) < 1 {
		return errors.New("--devices, --tools, --repeat, --duration: must be greater than zero")
	}
	if o.Payload < 0 || o.Payload > MaxPayload {
		return fmt.Errorf("--payload: must be from 0 to %d bytes", MaxPayload)
	}
	return nil
}

// Note shows progress on a terminal. The next note replaces it.
func (o *Options) Note(format string, args ...any) {
	if o.Terminal {
		fmt.Fprintf(o.Err, "\r\033[K"+format, args...)
	}
}

// Step shows the start of a step. Without a terminal it prints a line.
func (o *Options) Step(format string, args ...any) {
	if o.Terminal {
		o.Note(format, args...)
	} else {
		fmt.Fprintf(o.Err, format+"\n", args...)
	}
}

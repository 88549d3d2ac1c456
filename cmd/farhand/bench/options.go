package bench

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"
)

// Routes a call can take.
const (
	RouteLocal = "local" // the pod that is asked holds the device
	RouteCross = "cross" // another does
)

// MaxPayload leaves room in a frame of the default limit for what is around the payload.
const MaxPayload = 1_000_000

// Options say what is measured and how. Zero fields get defaults by Fill.
type Options struct {
	Pods  []string // URLs: the first holds the devices, the second is asked on the route cross
	Token string   // of Pods
	Redis string   // URL; empty: Redis is not asked what it used
	PIDs  []int    // of Pods, in their order

	Devices  int           // that are called; default 128
	Tools    int           // per device; default 5
	Payload  int           // bytes each way beside a nonce
	Callers  []int         // one run for each; default 1, 64, 512
	Routes   []string      // default local, cross
	Duration time.Duration // of one run, after Warmup; default 2 s
	Warmup   time.Duration // default a fifth of Duration
	Repeat   int           // runs of each, of which the median is taken; default 1
	Grace    time.Duration // how much longer a run may take in which not a single call succeeded

	Out io.Writer // results
	Err io.Writer // progress
	// Terminal says that Err is read by a person: progress is then drawn on one line.
	Terminal bool
}

// Fill sets defaults and checks the rest. How many pods there are is not checked.
func (o *Options) Fill() error {
	setDefault(&o.Devices, 128)
	setDefault(&o.Tools, 5)
	setDefault(&o.Duration, 2*time.Second)
	setDefault(&o.Repeat, 1)
	if len(o.Callers) == 0 {
		o.Callers = []int{1, 64, 512}
	}
	if len(o.Routes) == 0 {
		o.Routes = []string{RouteLocal, RouteCross}
	}
	setDefault(&o.Warmup, o.Duration/5)
	for i, pod := range o.Pods {
		o.Pods[i] = strings.TrimSuffix(pod, "/")
		if u, err := url.Parse(o.Pods[i]); err != nil || u.Scheme != "http" || u.Port() == "" || u.Path != "" {
			const format = "--pods %s: must be of the form http://host:port; TLS would be most of what is measured"
			return fmt.Errorf(format, pod)
		}
	}
	for _, n := range o.Callers {
		if n < 1 {
			return errors.New("--callers: must be greater than zero")
		}
	}
	for _, route := range o.Routes {
		if route != RouteLocal && route != RouteCross {
			return fmt.Errorf("--route %s: must be local or cross", route)
		}
	}
	if o.Payload > MaxPayload {
		return fmt.Errorf("--payload: at most %d bytes fit a frame", MaxPayload)
	}
	return nil
}

func setDefault[T int | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// Note shows on a terminal what is going on; the next one replaces it.
func (o *Options) Note(format string, args ...any) {
	if o.Terminal {
		fmt.Fprintf(o.Err, "\r\033[K"+format, args...)
	}
}

// Step says what begins: on a line of its own where nobody watches.
func (o *Options) Step(format string, args ...any) {
	if o.Terminal {
		o.Note(format, args...)
	} else {
		fmt.Fprintf(o.Err, format+"\n", args...)
	}
}

// plan returns one run of the given number of callers.
func (o *Options) plan(what string, callers int) plan {
	return plan{
		callers: callers, warmup: o.Warmup, duration: o.Duration, grace: o.Grace,
		progress: func(elapsed time.Duration, calls int64) {
			if seconds := elapsed.Seconds(); seconds > 0 {
				o.Note("%s, %d callers: %.1fs, %.0f calls/s", what, callers, seconds, float64(calls)/seconds)
			}
		},
	}
}

package bench

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Routes a call can take.
const (
	RouteLocal = "local" // the pod that is asked holds the device
	RouteCross = "cross" // another does
)

// maxPayload leaves room in a frame of the default limit for what is around the payload.
const maxPayload = 1_000_000

// Options say what is measured and how. Zero fields get defaults by Fill.
type Options struct {
	Pods  []string // URLs: the first holds the devices, the second is asked on the route cross
	Fleet int      // instead of Pods: start that many
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

	Reference bool     // measure the references too, and print the target table
	Only      []string // of the rows of the target table; empty: all
	Quick     bool     // fractions of a second and small numbers: does it run, not how fast
	Profiles  string   // directory for profiles of the pods, of calls at 512 callers and of idle sessions; empty: none

	Program string    // this program, for children
	Out     io.Writer // results
	Err     io.Writer // progress
	// Terminal says that Err is read by a person: progress is then drawn on one line.
	Terminal bool
}

// Fill sets defaults and checks the rest.
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
	if o.Quick {
		o.Duration, o.Devices, o.Repeat = 200*time.Millisecond, min(o.Devices, 16), 1
	}
	setDefault(&o.Warmup, o.Duration/5)
	for i, pod := range o.Pods {
		o.Pods[i] = strings.TrimSuffix(pod, "/")
		if u, err := url.Parse(o.Pods[i]); err != nil || u.Scheme != "http" || u.Port() == "" || u.Path != "" {
			return fmt.Errorf("--pods %s: must be of the form http://host:port; TLS would be most of what is measured", pod)
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
	for _, row := range o.Only {
		if !slices.ContainsFunc(rows, func(r targetRow) bool { return r.name == row }) {
			return fmt.Errorf("--only %s: there is no such row; there are %s", row, strings.Join(rowNames(), ", "))
		}
	}
	switch {
	case (len(o.Pods) == 0) == (o.Fleet == 0):
		return errors.New("give either --pods, to measure pods that are running, or --fleet, to start some")
	case max(len(o.Pods), o.Fleet) < 2 && slices.Contains(o.Routes, RouteCross):
		return errors.New("the route cross needs two pods; add one, or choose --route local")
	case o.Payload > maxPayload:
		return fmt.Errorf("--payload: at most %d bytes fit a frame", maxPayload)
	case o.Reference && o.Fleet == 0:
		return errors.New("--reference starts servers of its own beside a fleet of its own: use --fleet")
	}
	return nil
}

func setDefault[T int | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// note shows on a terminal what is going on; the next one replaces it.
func (o *Options) note(format string, args ...any) {
	if o.Terminal {
		fmt.Fprintf(o.Err, "\r\033[K"+format, args...)
	}
}

// step says what begins: on a line of its own where nobody watches.
func (o *Options) step(format string, args ...any) {
	if o.Terminal {
		o.note(format, args...)
	} else {
		fmt.Fprintf(o.Err, format+"\n", args...)
	}
}

// plan returns one run of the given number of callers.
func (o *Options) plan(what string, callers int) plan {
	p := plan{
		callers: callers, warmup: o.Warmup, duration: o.Duration,
		progress: func(elapsed time.Duration, calls int64) {
			if elapsed > 0 {
				o.note("%s, %d callers: %.1fs, %.0f calls/s", what, callers, elapsed.Seconds(), float64(calls)/elapsed.Seconds())
			}
		},
	}
	if o.Quick {
		p.grace = 30 * time.Second
	}
	return p
}

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Side is one set of pods with the devices connected to its first.
type Side struct {
	Name    string
	Pods    []string // URLs; callers of route cross call the second
	Token   string   // of devices and callers
	PIDs    []int    // of the pods, whose usage is printed; may be empty
	Devices *Swarm   // set by Connect

	// NewCaller returns the i-th caller of the sessions through a pod. Nil: Options.NewCaller with Token.
	NewCaller func(pod string, sessions []string, i int) Caller
}

// Connect connects the side's devices.
func (s *Side) Connect(ctx context.Context, o *Options) error {
	prefix := "bench-" + strconv.FormatUint(rand.Uint64(), 36)
	o.Step("connecting %d devices to %s", o.Devices, s.Pods[0])
	devices, err := ConnectSwarm(ctx, s.Pods[0], s.Token, prefix, o.Devices, o.Tools)
	s.Devices = devices
	return err
}

// Open returns the function that makes callers of a route.
func (s *Side) Open(o *Options, route string) func(int) (Caller, error) {
	pod := s.Pods[0]
	if route == RouteCross {
		pod = s.Pods[1]
	}
	sessions := s.Devices.Sessions()
	return func(i int) (Caller, error) {
		if s.NewCaller != nil {
			return s.NewCaller(pod, sessions, i), nil
		}
		return o.NewCaller(pod, s.Token, sessions, i), nil
	}
}

// NewCaller returns the i-th caller of a pod. It chooses among the sessions by o.Spread.
func (o *Options) NewCaller(pod, token string, sessions []string, i int) Caller {
	return NewHTTPCaller(pod, o.Spread.Chooser(sessions, i), o.Payload, CallRequest(token))
}

// Measure runs the callers of one route once. redis may be nil.
func (s *Side) Measure(ctx context.Context, o *Options, redis *RedisProbe, route string, callers int) (Figures, error) {
	f, err := s.MeasureCallers(ctx, o, redis, s.Name+" "+route, callers, s.Open(o, route))
	if err != nil {
		return f, err
	}
	f.Route = route
	if err := s.Devices.Lost(); err != nil {
		return f, fmt.Errorf("%s: %w", s.Name, err)
	}
	return f, nil
}

// MeasureCallers runs callers once and watches the pods during the run. what names the callers. redis may be nil.
func (s *Side) MeasureCallers(
	ctx context.Context, o *Options, redis *RedisProbe, what string, callers int, open func(int) (Caller, error),
) (Figures, error) {
	before := s.readCounters(ctx)
	watch, err := StartWatch(ctx, s.PIDs, redis)
	if err != nil {
		return Figures{}, err
	}
	f, err := o.Drive(ctx, what, callers, open)
	if err != nil {
		return f, err
	}
	if f.Redis, err = watch.RedisUse(ctx); err != nil {
		return f, err
	}
	if f.Usage, err = watch.Usage(ctx); err != nil {
		return f, err
	}
	f.Found = found(before, s.readCounters(ctx))
	return f, nil
}

// Line has the figures of the sides for one route and number of callers, in the sides' order.
type Line struct {
	Workload string // empty if there is only one
	Route    string
	Callers  int
	Sides    []Figures
}

// Compare measures every route with every number of callers, alternating between the sides.
func (o *Options) Compare(
	ctx context.Context, redis *RedisProbe, routes []string, callers []int, sides ...*Side,
) ([]Line, error) {
	var lines []Line
	for _, route := range routes {
		for _, n := range callers {
			runs := make([][]Figures, len(sides))
			for range o.Repeat {
				for i, s := range sides {
					f, err := s.Measure(ctx, o, redis, route, n)
					if err != nil {
						return nil, err
					}
					runs[i] = append(runs[i], f)
				}
			}
			l := Line{Route: route, Callers: n}
			var said []string
			for i, r := range runs {
				f := MedianFigures(r)
				l.Sides = append(l.Sides, f)
				said = append(said, fmt.Sprintf("%s %.0f/s, p50 %s", sides[i].Name, f.PerSecond, Short(f.P50)))
			}
			lines = append(lines, l)
			o.Step("%s, %d callers: %s", route, n, strings.Join(said, "; "))
		}
	}
	return lines, nil
}

// Run measures pods that are running and prints the figures.
func Run(ctx context.Context, o Options, asJSON bool) error {
	if err := o.Check(); err != nil {
		return err
	}
	switch {
	case len(o.Callers) == 0:
		return errors.New("--callers: at least one number is required")
	case len(o.Pods) == 0:
		return errors.New("--pods is required: the URLs of the pods to measure")
	case len(o.Pods) < 2 && slices.Contains(o.Routes, RouteCross):
		return errors.New("--route cross needs two pods: add one to --pods, or use --route local")
	}
	s := &Side{Name: "farhand", Pods: o.Pods, Token: o.Token, PIDs: o.PIDs}
	var redis *RedisProbe
	if o.Redis != "" {
		var err error
		if redis, err = NewRedisProbe(o.Redis); err != nil {
			return err
		}
		defer redis.Close()
	}
	if err := s.Connect(ctx, &o); err != nil {
		return err
	}
	defer s.Devices.Close()
	lines, err := o.Compare(ctx, redis, o.Routes, o.Callers, s)
	if err != nil {
		return err
	}
	for i := range lines {
		lines[i].Workload = fmt.Sprintf("%s, %d devices", o.Spread, o.Devices)
	}
	o.Note("")
	return o.Report(asJSON, []string{s.Name}, lines)
}

// JSONFigures is one line for one side.
type JSONFigures struct {
	Side string `json:"side"`
	Figures
}

// Report prints lines, side by side.
func (o *Options) Report(asJSON bool, sides []string, lines []Line) error {
	if !asJSON {
		return PrintLines(o.Out, sides, lines)
	}
	enc := json.NewEncoder(o.Out)
	enc.SetIndent("", "  ")
	return enc.Encode(map[string]any{"figures": JSONLines(sides, lines)})
}

// JSONLines converts lines for output as JSON.
func JSONLines(sides []string, lines []Line) []JSONFigures {
	list := []JSONFigures{}
	for _, l := range lines {
		for i, f := range l.Sides {
			list = append(list, JSONFigures{Side: sides[i], Figures: f})
		}
	}
	return list
}

// PrintLines prints lines as a table.
func PrintLines(out io.Writer, sides []string, lines []Line) error {
	tw := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	if len(lines) > 0 {
		fmt.Fprintln(tw, "route\tworkload\tcallers\t\tcalls/s\tp50\tp90\tp99\tmax\terrors\tused\tfound")
	}
	for _, l := range lines {
		for i, f := range l.Sides {
			fmt.Fprintf(tw, "%s\t%s\t%d\t%s\t%.0f\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
				l.Route, l.Workload, l.Callers, sides[i], f.PerSecond, Short(f.P50), Short(f.P90), Short(f.P99),
				Short(f.Max), ErrorsText(f.Errors), UsageText(f.Usage), f.Found.Text())
		}
	}
	return tw.Flush()
}

// ErrorsText renders the number of errors by code.
func ErrorsText(errors map[string]int64) string {
	if len(errors) == 0 {
		return "-"
	}
	var parts []string
	for code, n := range errors {
		parts = append(parts, fmt.Sprintf("%s %d", code, n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// UsageText renders the usage of processes.
func UsageText(list []Usage) string {
	parts := make([]string, len(list))
	for i, u := range list {
		parts[i] = fmt.Sprintf("%s %.0f%% %.0f MB", u.Name, u.CPU*100, float64(u.Memory)/1e6)
	}
	return strings.Join(parts, ", ")
}

// Short renders a duration with about three digits.
func Short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%.0fµs", float64(d)/float64(time.Microsecond))
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.2fms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%.0fms", float64(d)/float64(time.Millisecond))
	default:
		return fmt.Sprintf("%.2fs", d.Seconds())
	}
}

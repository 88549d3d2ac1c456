package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
)

// Side is one set of pods with the devices connected to its first.
type Side struct {
	Name    string
	Pods    []string // their URLs; the second is asked on the route cross
	Token   string
	Names   []string // of the processes of PIDs
	PIDs    []int    // of processes whose use of the machine is printed; may be empty
	Devices *Swarm   // once they are connected
}

// Connect connects the devices that are called.
func (s *Side) Connect(ctx context.Context, o *Options) error {
	prefix := "bench-" + strconv.FormatUint(rand.Uint64(), 36)
	o.Step("connecting %d devices to %s", o.Devices, s.Pods[0])
	devices, err := ConnectSwarm(ctx, s.Pods[0], s.Token, prefix, o.Devices, o.Tools)
	s.Devices = devices
	return err
}

// Open returns how callers of a route are made. They share the devices evenly.
func (s *Side) Open(o *Options, route string) func(int) (Caller, error) {
	pod := s.Pods[0]
	if route == RouteCross {
		pod = s.Pods[1]
	}
	sessions := s.Devices.Sessions()
	return func(i int) (Caller, error) {
		session := sessions[i%len(sessions)]
		return newHTTPCaller(pod, s.Token, session, EchoTool, o.Payload), nil
	}
}

// Measure runs the callers of one route once.
func (s *Side) Measure(ctx context.Context, o *Options, redis *RedisProbe, route string, callers int) (Figures, error) {
	watch := WatchPIDs(s.Names, s.PIDs)
	var before RedisLoad
	if redis != nil {
		var err error
		if before, err = redis.Load(ctx); err != nil {
			return Figures{}, err
		}
	}
	f, err := drive(ctx, o.plan(s.Name+" "+route, callers), s.Open(o, route))
	if err != nil {
		return f, err
	}
	f.Route, f.Usage = route, watch.Usage()
	if redis != nil {
		after, err := redis.Load(ctx)
		if err != nil {
			return f, err
		}
		f.Usage = append(f.Usage, before.Usage(after))
	}
	if err := s.Devices.Lost(); err != nil {
		return f, fmt.Errorf("%s: %w", s.Name, err)
	}
	return f, f.check(s.Name + " " + route)
}

// Drive has callers call, and returns what they measured. Without a single success that is an error.
func (o *Options) Drive(ctx context.Context, what string, callers int, open func(int) (Caller, error)) (Figures, error) {
	f, err := drive(ctx, o.plan(what, callers), open)
	if err != nil {
		return f, err
	}
	return f, f.check(what)
}

// Line is what the sides measured for one route and number of callers, in their order.
type Line struct {
	Route   string
	Callers int
	Sides   []Figures
}

// Compare measures every route with every number of callers, the sides in turns.
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
			for _, r := range runs {
				l.Sides = append(l.Sides, MedianFigures(r))
			}
			lines = append(lines, l)
			o.Step("%s, %d callers: %s", route, n, summary(sides, l))
		}
	}
	return lines, nil
}

func summary(sides []*Side, l Line) string {
	text := ""
	for i, f := range l.Sides {
		if i > 0 {
			text += "; "
		}
		text += fmt.Sprintf("%s %.0f/s, p50 %s", sides[i].Name, f.PerSecond, Short(f.P50))
	}
	return text
}

// Run measures pods that are running and prints the figures.
func Run(ctx context.Context, o Options, asJSON bool) error {
	if err := o.Fill(); err != nil {
		return err
	}
	switch {
	case len(o.Pods) == 0:
		return errors.New("--pods: name the pods to measure")
	case len(o.Pods) < 2 && slices.Contains(o.Routes, RouteCross):
		return errors.New("the route cross needs two pods; add one, or choose --route local")
	}
	s := &Side{Name: "farhand", Pods: o.Pods, Token: o.Token, PIDs: o.PIDs}
	for i := range o.PIDs {
		s.Names = append(s.Names, "pod"+strconv.Itoa(i))
	}
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
	o.Note("")
	return o.Report(asJSON, []string{s.Name}, lines)
}

package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
)

// side is one set of pods with the devices connected to its first.
type side struct {
	name    string
	pods    []string
	token   string
	names   []string // of the processes of pids
	pids    []int
	devices *swarm
}

// connect connects the devices that are called.
func (s *side) connect(ctx context.Context, o *Options) error {
	prefix := "bench-" + strconv.FormatUint(rand.Uint64(), 36)
	o.step("connecting %d devices to %s", o.Devices, s.pods[0])
	devices, err := connectSwarm(ctx, s.pods[0], s.token, prefix, o.Devices, o.Tools)
	s.devices = devices
	return err
}

// open returns how callers of a route are made. They share the devices evenly.
func (s *side) open(o *Options, route string) func(int) (caller, error) {
	pod := s.pods[0]
	if route == RouteCross {
		pod = s.pods[1]
	}
	return func(i int) (caller, error) {
		session := s.devices.sessions[i%len(s.devices.sessions)]
		return newHTTPCaller(pod, s.token, session, echoTool, o.Payload), nil
	}
}

// measure runs the callers of one route once.
func (s *side) measure(ctx context.Context, o *Options, redis *redisProbe, route string, callers int) (Figures, error) {
	watch := watchPids(s.names, s.pids)
	var before redisLoad
	if redis != nil {
		var err error
		if before, err = redis.load(ctx); err != nil {
			return Figures{}, err
		}
	}
	f, err := drive(ctx, o.plan(s.name+" "+route, callers), s.open(o, route))
	if err != nil {
		return f, err
	}
	f.Route, f.Usage = route, usage(watch)
	if redis != nil {
		after, err := redis.load(ctx)
		if err != nil {
			return f, err
		}
		f.Usage = append(f.Usage, before.usage(after))
	}
	if lost := s.devices.lost.Load(); lost > 0 {
		return f, fmt.Errorf("%s: %d devices were cut off: %w", s.name, lost, *s.devices.failure.Load())
	}
	return f, f.check(s.name + " " + route)
}

// line is what the sides measured for one route and number of callers, in their order.
type line struct {
	route   string
	callers int
	sides   []Figures
}

// matrix measures every route with every number of callers, the sides in turns.
func (o *Options) matrix(ctx context.Context, redis *redisProbe, routes []string, callers []int, sides ...*side) ([]line, error) {
	var lines []line
	for _, route := range routes {
		for _, n := range callers {
			runs := make([][]Figures, len(sides))
			for range o.Repeat {
				for i, s := range sides {
					f, err := s.measure(ctx, o, redis, route, n)
					if err != nil {
						return nil, err
					}
					runs[i] = append(runs[i], f)
				}
			}
			l := line{route: route, callers: n}
			for _, r := range runs {
				l.sides = append(l.sides, medianFigures(r))
			}
			lines = append(lines, l)
			o.step("%s, %d callers: %s", route, n, summary(sides, l))
		}
	}
	return lines, nil
}

func summary(sides []*side, l line) string {
	text := ""
	for i, f := range l.sides {
		if i > 0 {
			text += "; "
		}
		text += fmt.Sprintf("%s %.0f/s, p50 %s", sides[i].name, f.PerSecond, shortly(f.P50))
	}
	return text
}

// Matrix measures pods that are running, or with Fleet set starts them, and prints the figures; with Reference set
// also the target table. It reports whether every target was met.
func Matrix(ctx context.Context, o Options, asJSON bool) (bool, error) {
	if err := o.Fill(); err != nil {
		return false, err
	}
	if o.Reference {
		return Targets(ctx, o, asJSON)
	}
	s := &side{name: "farhand", pods: o.Pods, token: o.Token}
	redis, err := o.prepare(ctx, s)
	if err != nil {
		return false, err
	}
	defer redis.close()
	if err := s.connect(ctx, &o); err != nil {
		return false, err
	}
	defer s.devices.close()
	lines, err := o.matrix(ctx, redis.probe, o.Routes, o.Callers, s)
	if err != nil {
		return false, err
	}
	o.note("")
	return true, o.report(asJSON, []string{s.name}, lines, nil)
}

// surroundings are what a matrix needs beside pods, and what has to be stopped after it.
type surroundings struct {
	probe *redisProbe
	fleet *fleet
}

func (s surroundings) close() {
	switch {
	case s.fleet != nil:
		s.fleet.close()
	case s.probe != nil:
		s.probe.close()
	}
}

// prepare finds the pods of a side, or starts them.
func (o *Options) prepare(ctx context.Context, s *side) (surroundings, error) {
	if o.Fleet > 0 {
		f, err := o.startFleet(ctx, o.Fleet)
		if err != nil {
			return surroundings{}, err
		}
		s.use(f.pods)
		return surroundings{probe: f.probe, fleet: f}, nil
	}
	for i, pid := range o.PIDs {
		s.names, s.pids = append(s.names, "pod"+strconv.Itoa(i)), append(s.pids, pid)
	}
	if o.Redis == "" {
		return surroundings{}, nil
	}
	probe, err := newRedisProbe(o.Redis)
	return surroundings{probe: probe}, err
}

// use makes pods of our own those of the side.
func (s *side) use(pods []*child) {
	s.pods, s.token, s.names, s.pids = urls(pods), benchToken, nil, nil
	for i, p := range pods {
		s.names, s.pids = append(s.names, "pod"+strconv.Itoa(i)), append(s.pids, p.pid())
	}
}

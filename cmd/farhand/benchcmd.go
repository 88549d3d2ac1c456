package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/cobra"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/cmd/farhand/bench"
)

// errTargetMissed ends `farhand bench` after its tables have been printed.
var errTargetMissed = errors.New("at least one target was missed")

// benchCommands are the measuring one and those its children run, which are hidden.
func (a *application) benchCommands() []*cobra.Command {
	return []*cobra.Command{a.benchCommand(), a.benchPodCommand(), a.benchReferenceCommand()}
}

func (a *application) benchCommand() *cobra.Command {
	var o bench.Options
	var asJSON, growth bool
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure a fleet",
		Long: "Connects devices over WebSocket and calls them over HTTP, checks every answer, and prints rates and\n" +
			"latencies for each route and number of callers. With --pods it measures pods that are running, with --fleet it\n" +
			"starts a Redis and pods of its own. --reference measures a featureless server beside them, in turns, and prints\n" +
			"the target table; --growth prints how cost grows with the fleet. Generator and pods should not share a machine,\n" +
			"unless figures of the same run are compared.",
		Example: "farhand bench --pods http://10.0.0.1:8080,http://10.0.0.2:8080 --callers 64,512 --duration 10s\n" +
			"farhand bench --fleet 2 --reference --repeat 5",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.bench(cmd.Context(), o, asJSON, growth) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Pods, "pods", nil, "URLs of running pods, comma-separated: the first gets the devices, the second is asked on the route cross")
	f.IntVar(&o.Fleet, "fleet", 0, "start this many pods and a Redis instead")
	f.IntVar(&o.Devices, "devices", 128, "devices to call")
	f.IntVar(&o.Tools, "tools", 5, "tools of each device")
	f.IntSliceVar(&o.Callers, "callers", []int{1, 64, 512}, "callers at once, one run for each number")
	f.DurationVar(&o.Duration, "duration", 2*time.Second, "measured time of one run")
	f.DurationVar(&o.Warmup, "warmup", 0, "time before that; 0 means a fifth of the duration")
	f.IntVar(&o.Payload, "payload", 64, "bytes a call carries each way")
	f.StringSliceVar(&o.Routes, "route", []string{bench.RouteLocal, bench.RouteCross}, "routes: local, cross")
	f.IntVar(&o.Repeat, "repeat", 1, "runs of each, of which the median is printed")
	f.StringVar(&o.Token, "token", "", "bearer token of the pods (FARHAND_TOKEN)")
	f.StringVar(&o.Redis, "redis", "", "URL of the pods' Redis, to see its CPU and memory")
	f.IntSliceVar(&o.PIDs, "pids", nil, "process ids of the pods, when they run on this machine, to see their CPU and memory")
	f.BoolVar(&o.Reference, "reference", false, "measure the references too and print the target table; needs --fleet")
	f.StringSliceVar(&o.Only, "only", nil, "rows of the target table to measure")
	f.BoolVar(&growth, "growth", false, "print how cost grows instead; starts fleets of its own")
	f.BoolVar(&o.Quick, "quick", false, "fractions of a second each: shows that it runs, not how fast")
	f.StringVar(&o.Profiles, "profiles", "", "directory for CPU and allocation profiles of the pods: of calls at 512 callers, and of idle sessions; needs --reference")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	o.Token = env.ToMap(a.environ)[envPrefix+"TOKEN"]
	return cmd
}

func (a *application) bench(ctx context.Context, o bench.Options, asJSON, growth bool) error {
	defer raiseHeapFloor(a.environ)() // what is measured in process runs as pods do
	program, err := bench.Program()
	if err != nil {
		return err
	}
	o.Program, o.Out, o.Err, o.Terminal = program, a.out, a.err, isTerminal(a.err)
	if growth {
		return bench.Growth(ctx, o)
	}
	met, err := bench.Matrix(ctx, o, asJSON)
	if err == nil && !met && !o.Quick { // quick figures mean nothing
		return errTargetMissed
	}
	return err
}

// benchPodCommand is a pod that also says what its heap holds and writes profiles.
func (a *application) benchPodCommand() *cobra.Command {
	var profiles string
	cmd := &cobra.Command{
		Use: bench.PodCommand, Hidden: true, Args: cobra.NoArgs, Short: "Run one pod for a measurement",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bench.RunChild(cmd.Context(), a.in, a.out, profiles, a.serveChild)
		},
	}
	cmd.Flags().StringVar(&profiles, "profiles", "", "directory for profiles")
	return cmd
}

// serveChild is serve without its words about the surroundings.
func (a *application) serveChild(ctx context.Context, ready func()) error {
	cfg, err := farhand.LoadConfig(a.environ)
	if err != nil {
		return err
	}
	log := newLogger(a.err, max(cfg.LogLevel, slog.LevelWarn), cfg.LogFormat)
	g, _, err := openGateway(ctx, cfg, log)
	if err != nil {
		return err
	}
	ready()
	return a.runAndClose(ctx, g, cfg, log)
}

func (a *application) benchReferenceCommand() *cobra.Command {
	parent := &cobra.Command{Use: bench.ReferenceCommand, Hidden: true, Short: "The featureless server that figures are held against"}
	var addr, redis, pod string
	serve := &cobra.Command{
		Use: "serve", Args: cobra.NoArgs, Short: "Run one pod of it",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bench.RunChild(cmd.Context(), a.in, a.out, "", func(ctx context.Context, ready func()) error {
				// As in a pod, or the figures would compare how often garbage is collected on a small heap.
				defer raiseHeapFloor(a.environ)()
				if err := bench.ServeReference(ctx, addr, redis, pod, ready); err != nil {
					return fmt.Errorf("reference: %w", err)
				}
				return nil
			})
		},
	}
	serve.Flags().StringVar(&addr, "addr", "127.0.0.1:8090", "address to listen on")
	serve.Flags().StringVar(&redis, "redis", "redis://127.0.0.1:6379", "URL of Redis")
	serve.Flags().StringVar(&pod, "pod", "reference", "name of this pod")
	parent.AddCommand(serve)
	return parent
}

package main

import (
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/cobra"

	"github.com/farhand/farhand/cmd/farhand/bench"
)

func (a *application) benchCommand() *cobra.Command {
	var o bench.Options
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure running pods",
		Long: "Connects devices over WebSocket to pods that are running and calls them over HTTP, checks every\n" +
			"answer, and prints rates and latencies for each route and number of callers. Generator and pods should\n" +
			"not share a machine, unless figures of the same run are compared.",
		Example: "farhand bench --pods http://10.0.0.1:8080,http://10.0.0.2:8080 --callers 64,512 --duration 10s",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out, o.Err, o.Terminal = a.out, a.err, isTerminal(a.err)
			return bench.Run(cmd.Context(), o, asJSON)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Pods, "pods", nil,
		"URLs of running pods, comma-separated: the first gets the devices, the second is asked on the route cross")
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
	f.IntSliceVar(&o.PIDs, "pids", nil,
		"process ids of the pods, when they run on this machine, to see their CPU and memory")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	o.Token = env.ToMap(a.environ)[envPrefix+"TOKEN"]
	return cmd
}

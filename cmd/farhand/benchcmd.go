package main

import (
	"github.com/caarlos0/env/v11"
	"github.com/spf13/cobra"

	"github.com/farhand/farhand/cmd/farhand/bench"
)

func (a *application) benchCommand() *cobra.Command {
	o := bench.DefaultOptions()
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
	o.Flags(f)
	f.StringSliceVar(&o.Pods, "pods", nil,
		"URLs of running pods, comma-separated: the first gets the devices, the second is asked on the route cross")
	f.StringSliceVar(&o.Routes, "route", o.Routes, "routes: local, cross")
	f.StringVar(&o.Token, "token", "", "bearer token of the pods (FARHAND_TOKEN)")
	f.StringVar(&o.Redis, "redis", "", "URL of the pods' Redis, to see its CPU and memory")
	f.IntSliceVar(&o.PIDs, "pids", nil,
		"process ids of the pods, when they run on this machine, to see their CPU and memory")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	o.Token = env.ToMap(a.environ)[envPrefix+"TOKEN"]
	return cmd
}

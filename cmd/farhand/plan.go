package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/farhand/farhand/cmd/farhand/capacity"
	"github.com/farhand/farhand/internal/bytesize"
)

func (a *application) planCommand() *cobra.Command {
	d := capacity.Demand{PodCores: 4, Zones: 3}
	var payload, memory string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Compute what a fleet needs for a number of devices and calls",
		Long: "Computes pods, cores, memory, Redis, network, what breaks first, and how long all devices take to come\n" +
			"back, from costs that were measured on the machine that it names. What is left after the loss of a\n" +
			"zone, or of a pod with --zones 1, still carries everything. See docs/scale.md.",
		Example: "farhand plan --devices 1e6 --calls-per-second 5e4 --payload 2KB",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for flag, of := range map[string]struct {
				text string
				to   *float64
			}{"--payload": {payload, &d.Payload}, "--pod-memory": {memory, &d.PodMemory}} {
				n, err := bytesize.Parse(of.text)
				if err != nil {
					return fmt.Errorf("%s: %w", flag, err)
				}
				*of.to = float64(n)
			}
			costs, err := capacity.Measured()
			if err != nil {
				return err
			}
			p, err := d.Plan(costs)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), p)
			}
			return writePlan(cmd.OutOrStdout(), p)
		},
	}
	f := cmd.Flags()
	f.Float64Var(&d.Devices, "devices", 0, "connected devices: 10000, 1e6")
	f.Float64Var(&d.Calls, "calls-per-second", 0, "calls of all devices")
	f.StringVar(&payload, "payload", "1KB", "size of the arguments, and of the result, of a call")
	f.Float64Var(&d.PodCores, "pod-cores", d.PodCores, "cores of a pod")
	f.StringVar(&memory, "pod-memory", "8GiB", "memory of a pod")
	f.Float64Var(&d.Zones, "zones", d.Zones, "zones of which one may be lost; with 1, one pod may")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func writePlan(out io.Writer, p capacity.Plan) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	row := func(what, format string, args ...any) { fmt.Fprintf(w, what+"\t"+format+"\n", args...) }
	size := func(n float64) string { return bytesize.Format(uint64(n)) }
	row("cells", "%d; what follows is of one", p.Cells)
	row("pods", "%d in %.0f zones, each with %.0f cores and %s", p.Pods, p.Demand.Zones, p.Demand.PodCores,
		size(p.Demand.PodMemory))
	row("cores", "%.1f busy, %.0f %% of all", p.Cores, 100*p.PodLoad)
	row("memory", "%s in each pod that is left when a zone or pod is lost", size(p.PodBytes))
	redis := "one, with a replica"
	if p.Shards > 1 {
		redis = fmt.Sprintf("a Cluster of %d masters, each with a replica", p.Shards)
	}
	row("Redis", "%s, %.0f %% busy, %s in all", redis, 100*p.RedisLoad, size(p.RedisBytes))
	row("network", "clients %s, pods %s, Redis %s, both directions", bits(p.ClientBits), bits(p.PodBits),
		bits(p.RedisBits))
	for i, l := range p.BreaksFirst {
		what := ""
		if i == 0 {
			what = "breaks first"
		}
		row(what, "%s: %s, %.0f %% of its limit; next: %s", l.What, l.Means, 100*l.Used, l.Do)
	}
	s := p.Storm
	row("all come back", "half in %s, all in %s: %.0f/s, bound by %s; %.1f attempts of each device are refused",
		seconds(s.Half), seconds(s.All), s.PerSecond, s.Bound, s.Refused)
	c := p.Constants
	row("measured", "%s, commit %s; %s; Redis %s", c.Date, c.Commit, c.Machine, c.Redis)
	return w.Flush()
}

// seconds writes a time, of less than 10 s with tenths.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	if d >= 10*time.Second {
		return d.Truncate(time.Second).String()
	}
	return d.Round(time.Second / 10).String()
}

// bits writes a rate in the unit of networks.
func bits(n float64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f Gbit/s", n/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.0f Mbit/s", n/1e6)
	default:
		return fmt.Sprintf("%.0f kbit/s", n/1e3)
	}
}

// Command farhand-bench measures Farhand for its developers: the target table beside a featureless reference, and how
// cost grows. It starts a Redis, pods and references of its own. README.md says
// how to use it.
//
// It builds on cmd/farhand/bench, which measures pods that are running. Start reading at targets.go: each row of the
// table is a function in a file rows_….go.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/internal/heapfloor"
)

// errTargetMissed ends the program after its tables have been printed.
var errTargetMissed = errors.New("at least one target was missed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "farhand-bench:", err)
		stop()
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var o options
	var asJSON, growth bool
	cmd := &cobra.Command{
		Use:   "farhand-bench",
		Short: "Measure Farhand beside a featureless reference, and how its cost grows",
		Args:  cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o, asJSON, growth) },
	}
	f := cmd.Flags()
	f.IntVar(&o.Fleet, "fleet", 2, "pods of the matrix")
	f.IntVar(&o.Devices, "devices", 128, "devices to call")
	f.IntVar(&o.Tools, "tools", 5, "tools of each device")
	f.IntSliceVar(&o.Callers, "callers", []int{1, 64, 512}, "callers at once, one run for each number")
	f.DurationVar(&o.Duration, "duration", 2*time.Second, "measured time of one run")
	f.DurationVar(&o.Warmup, "warmup", 0, "time before that; 0 means a fifth of the duration")
	f.IntVar(&o.Payload, "payload", 64, "bytes a call carries each way")
	f.IntVar(&o.Repeat, "repeat", 5, "runs of each, of which the median is printed")
	f.StringSliceVar(&o.Only, "only", nil, "rows of the target table to measure")
	f.BoolVar(&growth, "growth", false, "print how cost grows instead")
	f.BoolVar(&o.Quick, "quick", false, "fractions of a second each: shows that it runs, not how fast")
	f.StringVar(&o.Profiles, "profiles", "",
		"directory for CPU and allocation profiles of the pods: of calls at 512 callers, and of idle sessions")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(podServer(), referenceServer())
	return cmd
}

func run(ctx context.Context, o options, asJSON, growth bool) error {
	defer heapfloor.Raise(os.Environ())() // what is measured in process runs as pods do
	program, err := os.Executable()
	if err != nil {
		return err
	}
	o.Program, o.Out, o.Err = program, os.Stdout, os.Stderr
	if info, err := os.Stderr.Stat(); err == nil {
		o.Terminal = info.Mode()&os.ModeCharDevice != 0
	}
	if err := o.fill(); err != nil {
		return err
	}
	if growth {
		return measureGrowth(ctx, &o)
	}
	met, err := measureTargets(ctx, &o, asJSON)
	if err == nil && !met && !o.Quick { // quick figures mean nothing
		return errTargetMissed
	}
	return err
}

// podServer runs one pod of Farhand, configured by FARHAND_ variables, as a child of this program.
func podServer() *cobra.Command {
	var profiles string
	cmd := &cobra.Command{
		Use: podCommand, Hidden: true, Args: cobra.NoArgs, Short: "Run one pod of Farhand",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runChild(cmd.Context(), os.Stdin, os.Stdout, profiles, servePod)
		},
	}
	cmd.Flags().StringVar(&profiles, "profiles", "", "directory for profiles")
	return cmd
}

// servePod is what `farhand serve` does, without its words about the surroundings.
func servePod(ctx context.Context, ready func()) error {
	defer heapfloor.Raise(os.Environ())()
	cfg, err := farhand.LoadConfig(os.Environ())
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	g, err := farhand.New(ctx, cfg, farhand.WithLogger(log))
	if err != nil {
		return err
	}
	ready()
	runErr := g.Run(ctx)
	closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.DrainTimeout)
	defer cancel()
	return errors.Join(runErr, g.Close(closeCtx))
}

// referenceServer runs one pod of the reference, as a child of this program.
func referenceServer() *cobra.Command {
	var addr, redis, pod string
	cmd := &cobra.Command{
		Use: referenceCommand, Hidden: true, Args: cobra.NoArgs, Short: "Run one pod of the featureless reference",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runChild(cmd.Context(), os.Stdin, os.Stdout, "", func(ctx context.Context, ready func()) error {
				// As in a pod, or the figures would compare how often garbage is collected on a small heap.
				defer heapfloor.Raise(os.Environ())()
				return serveReference(ctx, addr, redis, pod, ready)
			})
		},
	}
	cmd.Flags().StringVar(&addr, "addr", "127.0.0.1:8090", "address to listen on")
	cmd.Flags().StringVar(&redis, "redis", "redis://127.0.0.1:6379", "URL of Redis")
	cmd.Flags().StringVar(&pod, "pod", "reference", "name of this pod")
	return cmd
}

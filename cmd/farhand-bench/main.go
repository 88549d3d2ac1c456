// Command farhand-bench measures Farhand for its developers: the target table, compared with a featureless reference,
// and how cost grows. It starts its own Redis, pods and references. README.md is its guide.
//
// It builds on cmd/farhand/bench, which measures running pods. Start reading at targets.go: each row of the table is a
// function in a file rows_….go.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent/sandbox/host"
	"github.com/farhand/farhand/internal/gcfloor"
	"github.com/farhand/farhand/internal/otlp"
)

// errTargetMissed ends the program after its tables were printed.
var errTargetMissed = errors.New("at least one target was missed")

func main() {
	self := host.Main() // before anything else
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(self).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "farhand-bench:", err)
		stop()
		os.Exit(1)
	}
}

func command(self host.Program) *cobra.Command {
	o := defaultOptions()
	o.Self = self
	var asJSON, growth bool
	var constants string
	cmd := &cobra.Command{
		Use:   "farhand-bench",
		Short: "Measure Farhand beside a featureless reference, and how its cost grows",
		Args:  cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o, asJSON, growth, constants) },
	}
	f := cmd.Flags()
	o.Flags(f)
	f.IntVar(&o.Fleet, "fleet", o.Fleet, "pods of the matrix")
	f.StringSliceVar(&o.Only, "only", nil, "rows of the target table to measure")
	f.BoolVar(&growth, "growth", false, "print how cost grows instead")
	f.StringVar(&constants, "write-constants", "",
		"write what farhand plan computes with to this file instead: cmd/farhand/capacity/constants.json")
	f.BoolVar(&o.Quick, "quick", false, "fractions of a second each: shows that it runs, not how fast")
	f.StringVar(&o.Profiles, "profiles", "",
		"directory for CPU and allocation profiles of the pods: of calls at 512 callers, and of idle sessions")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(podServer(self), referenceServer())
	return cmd
}

func run(ctx context.Context, o options, asJSON, growth bool, constants string) error {
	defer gcfloor.Raise(os.Environ())() // measurements in this process run as in pods
	program, err := os.Executable()
	if err != nil {
		return err
	}
	o.Program, o.Out, o.Err = program, os.Stdout, os.Stderr
	if info, err := os.Stderr.Stat(); err == nil {
		o.Terminal = info.Mode()&os.ModeCharDevice != 0
	}
	if err := o.complete(); err != nil {
		return err
	}
	if constants != "" {
		return writeConstants(ctx, &o, constants)
	}
	if growth {
		return measureGrowth(ctx, &o)
	}
	met, err := measureTargets(ctx, &o, asJSON)
	if err == nil && !met && !o.Quick { // figures of quick runs mean nothing
		return errTargetMissed
	}
	return err
}

// podServer runs one pod of Farhand, configured by FARHAND_ variables, as a child of this program.
func podServer(self host.Program) *cobra.Command {
	return &cobra.Command{
		Use: podCommand, Hidden: true, Args: cobra.NoArgs, Short: "Run one pod of Farhand",
		RunE: func(cmd *cobra.Command, _ []string) error {
			serve := func(ctx context.Context, ready func(addr string)) error { return servePod(ctx, self, ready) }
			return runChild(cmd.Context(), os.Stdin, os.Stdout, serve)
		},
	}
}

// servePod does the same as `farhand serve`, without its warnings about the environment.
func servePod(ctx context.Context, self host.Program, ready func(addr string)) error {
	defer gcfloor.Raise(os.Environ())()
	cfg, err := farhand.LoadConfig(os.Environ())
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	listener, err := farhand.Listen(ctx, cfg.Addr)
	if err != nil {
		return err
	}
	opts := []farhand.Option{farhand.WithLogger(log), farhand.WithListener(listener), farhand.WithProgram(self)}
	traces, err := otlp.LoadConfig(os.Environ())
	if err != nil {
		return err
	}
	if traces.On() {
		provider := otlp.Open(traces, "bench", log)
		defer provider.Close(ctx)
		opts = append(opts, farhand.WithTracerProvider(provider))
	}
	g, err := farhand.New(ctx, cfg, opts...)
	if err != nil {
		return err
	}
	ready(listener.Addr().String())
	runErr := g.Run(ctx)
	closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.DrainTimeout)
	defer cancel()
	return errors.Join(runErr, g.Close(closeCtx))
}

// referenceServer runs one pod of the reference, as a child of this program.
func referenceServer() *cobra.Command {
	var redis, pod string
	var lookup bool
	cmd := &cobra.Command{
		Use: referenceCommand, Hidden: true, Args: cobra.NoArgs, Short: "Run one pod of the featureless reference",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runChild(cmd.Context(), os.Stdin, os.Stdout,
				func(ctx context.Context, ready func(addr string)) error {
					// As in a pod; otherwise the figures would compare how often garbage is collected on a small heap.
					defer gcfloor.Raise(os.Environ())()
					return serveReference(ctx, redis, pod, lookup, ready)
				})
		},
	}
	cmd.Flags().StringVar(&redis, "redis", "redis://127.0.0.1:6379", "URL of Redis")
	cmd.Flags().StringVar(&pod, "pod", "reference", "name of this pod")
	cmd.Flags().BoolVar(&lookup, "lookup", false,
		"ask Redis for the pod of a device on each call, not only on the first")
	return cmd
}

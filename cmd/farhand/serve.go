package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/internal/gcfloor"
	"github.com/farhand/farhand/internal/otlp"
)

func (a *application) serveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "Run one pod of the gateway",
		Long: "Runs one pod of the gateway until SIGINT or SIGTERM. FARHAND_ variables configure it;\n" +
			"`farhand config` lists and checks them.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context()) },
	}
}

func (a *application) serve(ctx context.Context) error {
	cfg, err := a.loadConfig()
	if err != nil {
		return err
	}
	level := new(slog.LevelVar) // PUT /loglevel changes it
	level.Set(cfg.LogLevel)
	log := newLogger(a.err, level, cfg.LogFormat)
	if cfg.Anonymous() && inContainer() {
		log.Warn("this pod listens on "+cfg.Addr+", because callers need no credential; only its own container can "+
			"reach it: set FARHAND_TOKEN and FARHAND_ADDR=0.0.0.0:8080", "addr", cfg.Addr)
	}
	warnOfUnknown(log, a.environ)
	for _, finding := range cfg.Insecurities() {
		log.Warn("insecure setting", "finding", finding)
	}
	traces, closeTraces, err := a.openTraces(log)
	if err != nil {
		return err
	}
	defer closeTraces() // after the gateway, whose last spans it exports
	g, addr, err := a.openGateway(ctx, cfg, log, append(traces, farhand.WithLogLevel(level))...)
	if err != nil {
		return err
	}
	log.Info("serving", "addr", addr, "tls", cfg.TLSCert != "", "pod", g.Pod(), "version", version(),
		"store", storeOf(cfg))
	return a.runAndClose(ctx, g, cfg, log)
}

// lastExport is how long the last spans may take to export when the pod stops.
const lastExport = 3 * time.Second

// openTraces starts the export of traces if the standard variables of OpenTelemetry ask for it.
func (a *application) openTraces(log *slog.Logger) (opts []farhand.Option, stop func(), err error) {
	cfg, err := otlp.LoadConfig(a.environ)
	if err != nil || !cfg.On() {
		return nil, func() {}, err
	}
	p := otlp.Open(cfg, version(), log)
	return []farhand.Option{farhand.WithTracerProvider(p)}, func() {
		ctx, cancel := context.WithTimeout(context.Background(), lastExport)
		defer cancel()
		p.Close(ctx)
	}, nil
}

// loadConfig returns the configuration of the environment, with the folder of the state file filled in.
func (a *application) loadConfig() (farhand.Config, error) {
	cfg, err := farhand.LoadConfig(a.environ)
	if err == nil && cfg.DataDir == "" && cfg.RedisURL == "" {
		cfg.DataDir, err = defaultDataDir(a.environ)
	}
	return cfg, err
}

func defaultDataDir(environ []string) (string, error) {
	dir, err := farhand.StateDir(environ)
	if err != nil {
		return "", fmt.Errorf("FARHAND_DATA_DIR: must be set, or %s: %w", farhand.NoData, err)
	}
	return dir, nil
}

// storeOf names the store, for the log.
func storeOf(cfg farhand.Config) string {
	switch {
	case cfg.RedisURL != "":
		return "redis"
	case cfg.DataDir == farhand.NoData:
		return "memory"
	default:
		return cfg.DataDir
	}
}

func warnOfUnknown(log *slog.Logger, environ []string) {
	unknown, meant := unknownVariables(environ)
	for _, name := range unknown {
		log.Warn("unknown variable ignored; is it misspelt?", "variable", name, "did_you_mean", meant[name])
	}
}

// openGateway returns a gateway and the address it will listen on. It opens the listener first, because an address in
// use is the most likely error.
func (a *application) openGateway(
	ctx context.Context, cfg farhand.Config, log *slog.Logger, more ...farhand.Option,
) (g *farhand.Gateway, addr string, err error) {
	l, err := farhand.Listen(ctx, cfg.Addr)
	if err != nil {
		return nil, "", err
	}
	g, err = farhand.New(ctx, cfg, append(more, farhand.WithListener(l), farhand.WithLogger(log),
		farhand.WithVersion(version()), farhand.WithProgram(a.self))...)
	return g, l.Addr().String(), err
}

func (a *application) runAndClose(ctx context.Context, g *farhand.Gateway, cfg farhand.Config, log *slog.Logger) error {
	defer gcfloor.Raise(a.environ)()
	runErr := g.Run(ctx)
	log.Info("stopping", "limit", cfg.DrainTimeout.String())
	closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.DrainTimeout)
	defer cancel()
	if err := g.Close(closeCtx); err != nil {
		log.Warn("stopped before everything had ended", "error", err) // not an error: the fleet recovers
	} else {
		log.Info("stopped")
	}
	return runErr
}

// inContainer reports whether this process most likely runs in a container: container engines create these files, and
// Kubernetes sets this variable.
func inContainer() bool {
	for _, sign := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(sign); err == nil {
			return true
		}
	}
	return os.Getenv("KUBERNETES_SERVICE_HOST") != ""
}

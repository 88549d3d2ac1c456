package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/cobra"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/cmd/farhand/demotools"
)

// demoSession is the session id of the demo's device. It is fixed, so that the printed commands can be typed again.
const demoSession = "demo"

// demoIgnores are the variables that the demo does not read: it has its own store, and its device and callers have no
// credential except FARHAND_TOKEN. A name that ends in an underscore is a prefix.
var demoIgnores = []string{
	envPrefix + "REDIS_", envPrefix + "KEYS_ONLY", envPrefix + "JWT_", envPrefix + "PAIRING", envPrefix + "ADDR",
}

type demoOptions struct {
	addr    string
	once    bool
	origins []string
}

func (a *application) demoCommand() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Try it on this machine: a gateway, a device, a call",
		Long: "Starts a gateway with an in-memory store, connects this machine to it as a device, calls one of\n" +
			"its tools over HTTP, prints what happened, and keeps running so that you can try more.\n\n" +
			"Reads the variables of serve, including the model's, except those of Redis, pairing and\n" +
			"credentials other than FARHAND_TOKEN. It prints the ones it ignores, and logs rejected requests\n" +
			"with the reason.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context(), o) },
	}
	cmd.Flags().StringVar(&o.addr, "addr", "127.0.0.1:8080",
		"loopback address to listen on; if it is in use, a free port")
	cmd.Flags().BoolVar(&o.once, "once", false, "stop after the call")
	cmd.Flags().StringSliceVar(&o.origins, "allow-origin", nil,
		"web origin that may use the gateway, for example http://localhost:5173; repeatable")
	return cmd
}

// demoConfig returns the configuration of the demo, and the variables it ignores.
func demoConfig(environ []string, o demoOptions) (cfg farhand.Config, ignored []string, err error) {
	var read []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if slices.ContainsFunc(demoIgnores, func(family string) bool {
			return name == family || strings.HasSuffix(family, "_") && strings.HasPrefix(name, family)
		}) {
			ignored = append(ignored, name)
		} else {
			read = append(read, kv)
		}
	}
	slices.Sort(ignored)
	read = append(read, envPrefix+"ADDR="+o.addr)
	if origins := env.ToMap(environ)[envPrefix+"ALLOWED_ORIGINS"]; len(o.origins) > 0 {
		all := append(slices.DeleteFunc([]string{origins}, func(s string) bool { return s == "" }), o.origins...)
		read = append(read, envPrefix+"ALLOWED_ORIGINS="+strings.Join(all, ","))
	}
	cfg, err = farhand.LoadConfig(read)
	return cfg, ignored, err
}

func (a *application) demo(ctx context.Context, o demoOptions) error {
	cfg, ignored, err := demoConfig(a.environ, o)
	if err != nil {
		return err
	}
	log := newLogger(a.err, max(cfg.LogLevel, slog.LevelWarn), cfg.LogFormat)
	if len(ignored) > 0 {
		fmt.Fprintf(a.out, "Ignored, because the demo serves this machine only: %s.\n",
			strings.Join(ignored, ", "))
	}
	warnOfUnknown(log, a.environ)
	g, at, err := a.openGateway(ctx, cfg, log)
	if errors.Is(err, syscall.EADDRINUSE) {
		host, _, _ := net.SplitHostPort(o.addr) // LoadConfig has checked it
		cfg.Addr = net.JoinHostPort(host, "0")
		if g, at, err = a.openGateway(ctx, cfg, log); err == nil {
			fmt.Fprintf(a.out, "%s is taken, so a free port is used; the commands below name it.\n", o.addr)
		}
	}
	if err != nil {
		return err
	}
	runCtx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	served := make(chan error, 1)
	running.Go(func() { served <- g.Run(runCtx) })
	url := "http://" + at
	r := remote{server: url, token: string(cfg.Token)}
	err = a.showDemo(runCtx, r, &running, log)
	if err == nil && !o.once {
		a.suggestDemo(url, cfg)
		err = <-served
	}
	stop()
	running.Wait()
	closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.DrainTimeout)
	defer cancel()
	return errors.Join(err, g.Close(closeCtx))
}

func (a *application) suggestDemo(url string, cfg farhand.Config) {
	program := cmp.Or(a.program, "farhand")
	header, chat := "", ""
	if cfg.Token != "" {
		header = ` -H "Authorization: Bearer $FARHAND_TOKEN"`
	}
	if len(cfg.Models) > 0 {
		chat = fmt.Sprintf("  %s chat --session %s 'which machine is this?'\n", program, demoSession)
	}
	fmt.Fprintf(a.out, "\nThe gateway keeps running; Ctrl-C stops it. Try, in another terminal:\n\n"+
		"  export FARHAND_URL=%[1]s\n"+
		"  %[2]s tools\n"+
		"  %[2]s call sensors '{\"type\":\"load\"}'\n"+
		"%[3]s"+
		"  curl -s%[4]s %[1]s/api/sessions\n\n", url, program, chat, header)
}

// awaitDevice waits until the device is connected, and says so if that takes long.
func (a *application) awaitDevice(ready <-chan struct{}, failed <-chan error) error {
	long := time.NewTimer(time.Second)
	defer long.Stop()
	for {
		select {
		case <-ready:
			return nil
		case err := <-failed:
			return fmt.Errorf("the device did not connect: %w", err)
		case <-long.C:
			fmt.Fprintln(a.err, "   Waiting for this machine to connect as a device…")
		}
	}
}

func (a *application) showDemo(ctx context.Context, r remote, running *sync.WaitGroup, log *slog.Logger) error {
	url := r.server
	fmt.Fprintf(a.out, "1. A gateway listens on %s, with its in-memory store.\n", url)
	all := demotools.Basic()
	o := deviceOptions{remote: r, session: demoSession, name: "demo device"}
	c, err := a.newDevice(ctx, o, "/ws/chat", all, log)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	running.Go(func() { failed <- c.Run(ctx) })
	if err := a.awaitDevice(c.Ready(), failed); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "2. This machine connected over WebSocket as session %q and registered %s.\n", demoSession,
		demotools.Names(all))
	fmt.Fprintf(a.out, "3. A caller asks over HTTP:\n\n   POST %s/api/tools/device_info/call {\"args\":{}}\n\n", url)
	raw, err := r.do(ctx, "POST", "/api/tools/device_info/call", nil, map[string]any{"args": map[string]any{}})
	if err != nil {
		return err
	}
	fmt.Fprintf(a.out, "   and the gateway answers:\n\n   %s\n", raw)
	return nil
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/cmd/farhand/demotools"
	"github.com/farhand/farhand/ws/client"
)

// demoSession is the session id of the demo's device, so that the printed commands can be typed again.
const demoSession = "demo"

func (a *application) demoCommand() *cobra.Command {
	var addr string
	var once bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the main job on this machine alone: a gateway, a device, a call",
		Long: "Starts a gateway with its in-memory store, connects this machine to it as a device, calls one of the\n" +
			"device's tools over HTTP, prints what happened, and keeps running so that you can try more.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context(), addr, once) },
	}
	cmd.Flags().StringVar(&addr, "addr", "127.0.0.1:8080",
		"loopback address to listen on; if it is taken, a free port is used")
	cmd.Flags().BoolVar(&once, "once", false, "stop after the call")
	return cmd
}

func (a *application) demo(ctx context.Context, addr string, once bool) error {
	cfg, err := farhand.LoadConfig([]string{envPrefix + "ADDR=" + addr})
	if err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	g, at, err := openGateway(ctx, cfg, log)
	if errors.Is(err, syscall.EADDRINUSE) {
		host, _, _ := net.SplitHostPort(addr) // LoadConfig has checked it
		cfg.Addr = net.JoinHostPort(host, "0")
		if g, at, err = openGateway(ctx, cfg, log); err == nil {
			fmt.Fprintf(a.out, "%s is taken, so a free port is used; the commands below name it.\n", addr)
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
	err = a.showDemo(runCtx, url, &running, log)
	if err == nil && !once {
		program := cmp.Or(a.program, "farhand")
		fmt.Fprintf(a.out, "\nThe gateway keeps running; Ctrl-C stops it. Try, in another terminal:\n\n"+
			"  export FARHAND_URL=%[1]s\n"+
			"  %[2]s tools\n"+
			"  %[2]s call sensors '{\"type\":\"load\"}'\n"+
			"  curl -s %[1]s/api/sessions\n\n", url, program)
		err = <-served
	}
	stop()
	running.Wait()
	closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.DrainTimeout)
	defer cancel()
	return errors.Join(err, g.Close(closeCtx))
}

// awaitDevice waits until the device is connected, and says so where that takes long.
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
			fmt.Fprintln(a.err, "   Waiting for this machine to dial in as a device…")
		}
	}
}

// showDemo connects the device, calls it, and tells what happens.
func (a *application) showDemo(ctx context.Context, url string, running *sync.WaitGroup, log *slog.Logger) error {
	fmt.Fprintf(a.out, "1. A gateway listens on %s, with its in-memory store.\n", url)
	all := demotools.Basic()
	o := deviceOptions{remote: remote{server: url}, session: demoSession, name: "demo device"}
	c, err := newDevice(o, client.Credential{}, all, log)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	running.Go(func() { failed <- c.Run(ctx) })
	if err := a.awaitDevice(c.Ready(), failed); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "2. This machine dialled in over WebSocket as session %q and registered %s.\n", demoSession,
		demotools.Names(all))
	fmt.Fprintf(a.out, "3. A caller asks over HTTP:\n\n   POST %s/api/tools/device_info/call {\"args\":{}}\n\n", url)
	raw, err := o.remote.do(ctx, "POST", "/api/tools/device_info/call", nil, map[string]any{"args": map[string]any{}})
	if err != nil {
		return err
	}
	fmt.Fprintf(a.out, "   and the gateway answers:\n\n   %s\n", raw)
	return nil
}

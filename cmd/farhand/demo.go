package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/cobra"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/cmd/farhand/demomodel"
	"github.com/farhand/farhand/cmd/farhand/demotools"
)

// demoSession is the session id of the demo's device. It is fixed, so that the printed commands can be typed again.
const demoSession = "demo"

// demoFolder is the demo's own folder, below that of the gateway's data.
const demoFolder = "demo"

// demoIgnores are the variables that the demo does not read: it has its own store, and its device and callers have no
// credential except FARHAND_TOKEN. A name that ends in an underscore is a prefix.
var demoIgnores = []string{
	envPrefix + "REDIS_", envPrefix + "KEYS_ONLY", envPrefix + "JWT_", envPrefix + "PAIRING", envPrefix + "ADDR",
	envPrefix + "TLS_",
}

const (
	demoAddr    = "127.0.0.1:8080"
	demoAddrLAN = ":8080"
)

type demoOptions struct {
	addr    string
	once    bool
	lan     bool
	chat    bool
	origins []string
}

func (a *application) demoCommand() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Try it on this machine: a gateway, a device, a call",
		Long: "Starts a gateway, connects this machine to it as a device, calls one of its tools over HTTP,\n" +
			"prints what happened, and keeps running so that you can try more. Its data stays in the folder\n" +
			"demo of FARHAND_DATA_DIR.\n\n" +
			"--lan lets other devices of this network use it, such as a phone: over HTTPS, with a certificate\n" +
			"that this machine makes for itself and keeps, and with a token, which it makes up unless\n" +
			"FARHAND_TOKEN is set. --chat talks to the device: to a script that stands in for a language\n" +
			"model, unless FARHAND_MODEL is set.\n\n" +
			"Reads the variables of serve, including the model's, except those of Redis, TLS, pairing and\n" +
			"credentials other than FARHAND_TOKEN. It prints the ones it ignores, and logs rejected requests\n" +
			"with the reason.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.lan && !cmd.Flags().Changed("addr") {
				o.addr = demoAddrLAN
			}
			return a.demo(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.addr, "addr", demoAddr,
		"address to listen on, with --lan "+demoAddrLAN+"; if it is in use, a free port")
	cmd.Flags().BoolVar(&o.once, "once", false, "stop after the call")
	cmd.Flags().BoolVar(&o.lan, "lan", false, "let other devices of this network use it, over HTTPS with a token")
	cmd.Flags().BoolVar(&o.chat, "chat", false, "talk to the device; Ctrl-D ends the demo")
	cmd.MarkFlagsMutuallyExclusive("once", "chat")
	cmd.Flags().StringSliceVar(&o.origins, "allow-origin", nil,
		"web origin that may use the gateway, for example http://localhost:5173; repeatable")
	return cmd
}

// demoConfig returns the configuration of the demo, and the variables it ignores. network is nil without --lan.
func demoConfig(environ []string, o demoOptions, network *demoNetwork) (
	cfg farhand.Config, ignored []string, err error,
) {
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
	if network != nil {
		read = append(read, network.settings(env.ToMap(environ))...)
	}
	if cfg, err = farhand.LoadConfig(read); err != nil {
		return cfg, ignored, err
	}
	if cfg.DataDir != farhand.NoData {
		cfg.DataDir, err = demoDir(environ)
	}
	return cfg, ignored, err
}

func (a *application) demo(ctx context.Context, o demoOptions) error {
	network, err := a.openNetwork(o)
	if err != nil {
		return err
	}
	cfg, ignored, err := demoConfig(a.environ, o, network)
	if err != nil {
		return err
	}
	log := newLogger(a.err, max(cfg.LogLevel, slog.LevelWarn), cfg.LogFormat)
	if why := "Ignored, because the demo serves this machine only"; len(ignored) > 0 {
		if o.lan {
			why = "Ignored by the demo"
		}
		fmt.Fprintf(a.out, "%s: %s.\n", why, strings.Join(ignored, ", "))
	}
	warnOfUnknown(log, a.environ)
	g, at, err := a.openDemo(ctx, &cfg, o, log)
	if err != nil {
		return err
	}
	running := ctx
	if o.chat { // the first Ctrl-C only aborts an answer
		running = context.WithoutCancel(ctx)
	}
	runCtx, stop := context.WithCancel(running)
	var tasks sync.WaitGroup
	served := make(chan error, 1)
	tasks.Go(func() { served <- g.Run(runCtx) })
	r := remote{server: "http://" + at, token: string(cfg.Token)}
	if network != nil {
		r.server, r.trust = network.local(at), &trust{file: network.cert.Cert}
	}
	err = a.showDemo(runCtx, r, cfg, &tasks, log)
	if err == nil && !o.once {
		a.suggestDemo(r, cfg, o)
		a.showReach(network, r, cfg)
		err = a.stayInDemo(ctx, r, o, served)
	}
	stop()
	tasks.Wait()
	closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.DrainTimeout)
	defer cancel()
	return errors.Join(err, g.Close(closeCtx))
}

// openDemo opens the gateway on a free port if its own is in use, and with memory alone if another demo has the data.
func (a *application) openDemo(
	ctx context.Context, cfg *farhand.Config, o demoOptions, log *slog.Logger,
) (*farhand.Gateway, string, error) {
	var more []farhand.Option
	if o.chat && len(cfg.Models) == 0 {
		more = append(more, farhand.WithModel(demomodel.Model{}))
	}
	g, at, err := a.openGateway(ctx, *cfg, log, more...)
	if errors.Is(err, syscall.EADDRINUSE) {
		host, _, _ := net.SplitHostPort(o.addr) // LoadConfig has checked it
		cfg.Addr = net.JoinHostPort(host, "0")
		if g, at, err = a.openGateway(ctx, *cfg, log, more...); err == nil || errors.Is(err, farhand.ErrDataInUse) {
			fmt.Fprintf(a.out, "%s is taken, so a free port is used; the commands below name it.\n", o.addr)
		}
	}
	if errors.Is(err, farhand.ErrDataInUse) {
		fmt.Fprintln(a.out, "Another demo has the data of the last one, so this one keeps nothing.")
		cfg.DataDir = farhand.NoData
		g, at, err = a.openGateway(ctx, *cfg, log, more...)
	}
	return g, at, err
}

// demoDir returns the folder of what the demo keeps.
func demoDir(environ []string) (string, error) {
	dir := env.ToMap(environ)[envPrefix+"DATA_DIR"]
	if dir == "" || dir == farhand.NoData {
		var err error
		if dir, err = defaultDataDir(environ); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, demoFolder), nil
}

// stayInDemo waits until the demo is interrupted, or its conversation ends.
func (a *application) stayInDemo(ctx context.Context, r remote, o demoOptions, served <-chan error) error {
	switch {
	case !o.chat:
		return <-served
	case ctx.Err() != nil:
		return nil
	}
	return a.chat(ctx, "", chatOptions{remote: r, session: demoSession})
}

func (a *application) suggestDemo(r remote, cfg farhand.Config, o demoOptions) {
	program := cmp.Or(a.program, "farhand")
	header, chat, export := "", "", "export FARHAND_URL="+r.server
	if cfg.Token != "" {
		header = ` -H "Authorization: Bearer $FARHAND_TOKEN"`
	}
	if r.trust != nil {
		export += " FARHAND_CA=" + shellWord(r.trust.file)
		if !hasToken(env.ToMap(a.environ)) {
			export += " FARHAND_TOKEN=" + string(cfg.Token) // made up, so it is shown only here
		}
		header = ` --cacert "$FARHAND_CA"` + header
	}
	if len(cfg.Models) > 0 || o.chat {
		chat = fmt.Sprintf("  %s chat --session %s 'which machine is this?'\n", program, demoSession)
	}
	ends := "Ctrl-C"
	if o.chat {
		ends = "Ctrl-D"
	}
	fmt.Fprintf(a.out, "\nThe gateway keeps running; %[5]s stops it. Try, in another terminal:\n\n"+
		"  %[6]s\n"+
		"  %[2]s tools\n"+
		"  %[2]s call sensors '{\"type\":\"load\"}'\n"+
		"%[3]s"+
		"  curl -s%[4]s %[1]s/api/sessions\n\n", r.server, program, chat, header, ends, export)
}

// shellWord returns a text as one word of a shell.
func shellWord(text string) string {
	if !strings.ContainsFunc(text, func(c rune) bool {
		return !strings.ContainsRune("/._-+=:", c) && (c < '0' || c > '9') && (c < 'A' || c > 'Z') &&
			(c < 'a' || c > 'z')
	}) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
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

func (a *application) showDemo(
	ctx context.Context, r remote, cfg farhand.Config, running *sync.WaitGroup, log *slog.Logger,
) error {
	url, data := r.server, "in memory"
	if cfg.DataDir != farhand.NoData {
		data = "in " + cfg.DataDir
	}
	fmt.Fprintf(a.out, "1. A gateway listens on %s, and keeps its data %s.\n", url, data)
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

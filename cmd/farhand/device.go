package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/sandbox/host"
	"github.com/farhand/farhand/cmd/farhand/demotools"
	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/ws/client"
)

type deviceOptions struct {
	remote   remote
	session  string
	name     string
	deviceID string
	labels   map[string]string
	tools    []string
	contacts string
	verbose  bool
	ask      bool
	simulate bool
	location string
	desktop  desktopOptions
	mcp      string // command

	pair       bool
	credential string // file
}

func (a *application) deviceCommand() *cobra.Command {
	var o deviceOptions
	cmd := &cobra.Command{
		Use:   "device",
		Short: "Make this machine a device",
		Long: "Connects to a gateway and offers tools of this machine: device_info, sensors (load, memory,\n" +
			"temperature, battery if present), echo, sleep, and contacts if a vCard file is given. They\n" +
			"change nothing here. It reconnects by itself, and runs until interrupted.\n\n" +
			"--desktop adds what this computer can do by the programs of its system: notifications, clipboard,\n" +
			"screenshots and recordings, cameras, microphone, speech, location, pages in the browser, programs,\n" +
			"and the files of one folder. --list shows each tool, or why it is missing. Its person is asked\n" +
			"before an agent looks, listens, runs or writes.\n\n" +
			"--simulate adds the commands of nodes without touching this computer, to try the gateway's tools\n" +
			"nodes, node-invoke and canvas: its notifications are lines of this terminal, its pictures and clips\n" +
			"are generated. Only run is real (it asks on this terminal about each command; without one it runs\n" +
			"none), and the canvas, a page in this machine's browser. FARHAND_PRIVATE_URLS=true lets the canvas\n" +
			"load from private networks.\n\n" +
			"--mcp offers the tools of an MCP server (stdio) instead. The shell runs its command, and\n" +
			"restarts it with backoff when it ends. It ends with this program.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.device(cmd.Context(), o) },
	}
	f := cmd.Flags()
	o.remote.flags(f, a.environ)
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "this machine"
	}
	f.StringVar(&o.session, "session", "", "session id (default: the gateway chooses)")
	f.StringVar(&o.name, "name", hostname, "display name")
	f.StringVar(&o.deviceID, "device", "", "stable device id")
	f.StringToStringVar(&o.labels, "label", nil, "labels for callers to select by, key=value")
	f.StringSliceVar(&o.tools, "tools", nil, "offer only these tools, comma-separated")
	f.StringVar(&o.contacts, "contacts", "", "vCard file for the contacts tool")
	f.BoolVar(&o.pair, "pair", false, "pair this device: show a code, then store its credential")
	f.StringVar(&o.credential, "credential", "",
		"file for the credential of --pair (default: in this user's settings)")
	f.BoolVar(&o.ask, "ask", false, "ask on this terminal about calls that need approval")
	f.BoolVar(&o.simulate, "simulate", false, "also offer the commands of a node, with generated pictures and clips")
	f.BoolVar(&o.simulate, "node", false, "")
	_ = f.MarkHidden("node") // the former name of --simulate
	f.StringVar(&o.location, "location", "", "with --desktop or --simulate: LATITUDE,LONGITUDE for location_get "+
		"(default: where the system says; not offered by --simulate)")
	o.desktop.flags(f)
	f.StringVar(&o.mcp, "mcp", "", "command of an MCP server, such as 'npx -y some-server'")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "log every call")
	return cmd
}

func (a *application) device(ctx context.Context, o deviceOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	switch {
	case o.desktop.autostart:
		return a.autostart(ctx, o)
	case o.mcp != "":
		return a.mcpDevice(ctx, o)
	case o.desktop.list:
		return a.listDesktop(ctx, o)
	}
	all := demotools.Basic()
	if o.contacts != "" {
		contacts, err := demotools.Contacts(o.contacts)
		if err != nil {
			return err
		}
		all = append(all, contacts)
	}
	done := make(chan struct{})
	defer close(done)
	var terminal *terminalApprover
	if isTerminal(a.in) && (o.simulate || o.desktop.asksHere()) || o.ask && !o.desktop.offered {
		lines, _ := a.readLines(done) // when they end, decisions are made elsewhere
		terminal = newTerminalApprover(a.out, lines)
	}
	var approver client.Approver
	if o.ask && terminal != nil {
		approver = terminal.decide
	}
	stop := func() error { return nil }
	switch {
	case o.simulate:
		commands, stopCanvas, err := a.nodeCommands(ctx, o, terminal)
		if err != nil {
			return err
		}
		all, stop = append(all, commands...), stopCanvas
	case o.desktop.offered:
		d, err := a.openDesktop(ctx, o, terminal)
		if err != nil {
			return err
		}
		all, stop = append(all, d.tools...), d.stop
		if o.ask && approver == nil {
			approver = approverOf(d.Asks())
		}
	}
	return errors.Join(a.runDevice(ctx, o, all, approver, done), stop())
}

// check returns an error for options that do not go together.
func (o deviceOptions) check() error {
	switch {
	case o.simulate && o.desktop.offered:
		return errors.New("--desktop and --simulate exclude each other")
	case o.location != "" && !o.simulate && !o.desktop.offered:
		return errors.New("--location requires --desktop or --simulate")
	}
	return o.desktop.check()
}

// runDevice runs a device with the chosen tools until ctx ends.
func (a *application) runDevice(
	ctx context.Context, o deviceOptions, all []demotools.Tool, approver client.Approver, done <-chan struct{},
) error {
	chosen, err := demotools.Choose(all, o.tools)
	if err != nil {
		return err
	}
	var more []client.Option
	if approver != nil {
		more = append(more, client.WithApprover(approver))
	}
	c, err := a.newDevice(ctx, o, "/ws/chat", chosen, newLogger(a.err, o.level(), "auto"), more...)
	if err != nil {
		return err
	}
	go func() {
		select {
		case <-c.Ready():
			fmt.Fprintf(a.out, "session %s offers %s\n", oneLine(c.SessionID(), shownID), demotools.Names(chosen))
		case <-done:
		}
	}()
	err = c.Run(ctx)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return o.unpaired(err)
}

func (o deviceOptions) level() slog.Level {
	if o.verbose {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// unpaired returns the error that ended a device, with what to do if its credential was rejected.
func (o deviceOptions) unpaired(err error) error {
	refused, ok := errors.AsType[*client.RefusedError](err)
	if o.pair && ok && refused.Status == http.StatusUnauthorized {
		file, _ := o.credentialFile() // found before
		return fmt.Errorf("%w If this device was revoked, delete %s and pair it again", err, file)
	}
	return err
}

// logConnections logs first when the device is connected, unless it is empty, and "connected again" when it is back
// after each interruption: the client itself logs only why a connection ended.
func logConnections(log *slog.Logger, first string) client.Option {
	next := first
	return client.WithState(func(s client.State) {
		switch {
		case s.Phase == client.PhaseWaiting && next == "":
			next = "connected again"
		case s.Phase == client.PhaseConnected && next != "":
			log.Info(next)
			next = ""
		}
	})
}

// newDevice makes the device for one of the gateway's sockets. It pairs the device first if the options ask for that.
func (a *application) newDevice(
	ctx context.Context, o deviceOptions, path string, tools []demotools.Tool, log *slog.Logger, more ...client.Option,
) (*client.Client, error) {
	endpoint, err := deviceURL(o.remote.base(), path)
	if err != nil {
		return nil, err
	}
	trusted, err := o.remote.trust.tls()
	if err != nil {
		return nil, err
	}
	token, err := o.remote.bearer()
	if err != nil {
		return nil, err
	}
	options := []client.Option{
		client.WithToken(token), client.WithName(o.name), client.WithSession(o.session),
		client.WithDevice(o.deviceID, o.name, runtime.GOOS), client.WithLabels(o.labels), client.WithLogger(log),
		client.WithTLS(trusted), logConnections(log, ""),
	}
	var names []string
	for _, t := range tools {
		options, names = append(options, client.WithTool(t.Tool, t.Handler)), append(names, t.Name)
	}
	if o.pair {
		credential, err := a.pairDevice(ctx, o, endpoint, names)
		if err != nil {
			return nil, err
		}
		options = append(options, client.WithCredential(credential))
	}
	return client.New(endpoint, append(options, more...)...)
}

// deviceURL converts the URL of a gateway to the URL of one of its sockets for devices.
func deviceURL(server, path string) (string, error) {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" {
		return "", fmt.Errorf("--server %q must look like https://gateway.example.com", server)
	}
	switch u.Scheme {
	case "http", "ws":
		u.Scheme = "ws"
	case "https", "wss":
		u.Scheme = "wss"
	default:
		return "", fmt.Errorf("--server %q must start with http:// or https://", server)
	}
	u.Path = strings.TrimSuffix(u.Path, "/") + path
	return u.String(), nil
}

// Backoff before an MCP server is restarted. After running for stableServer it starts again at the minimum.
const (
	minServerDelay = 500 * time.Millisecond
	maxServerDelay = 30 * time.Second
	stableServer   = 30 * time.Second
)

// mcpDevice makes an MCP server the device until ctx ends, and restarts it when it ends.
func (a *application) mcpDevice(ctx context.Context, o deviceOptions) error {
	if o.simulate || o.desktop.offered || o.ask || o.contacts != "" || o.location != "" || len(o.tools) > 0 {
		return errors.New("--mcp offers only that server's tools: remove --tools, --contacts, --ask, --desktop, " +
			"--simulate and --location")
	}
	log := newLogger(a.err, o.level(), "auto")
	c, err := a.newDevice(ctx, o, "/ws/mcp", nil, log, logConnections(log, "connected"))
	if err != nil {
		return err
	}
	var engine sandbox.Engine
	// Opening it also hides the memory and the environment of this process.
	if e, err := host.New(host.Config{Program: a.self}); err != nil {
		log.Warn("processes of the MCP server may outlive it and read this program's environment", "reason", err)
	} else {
		engine = e
		defer func() { _ = e.Close(context.WithoutCancel(ctx)) }()
	}
	delay := minServerDelay
	for {
		begin := time.Now()
		server, err := startStdioServer(engine, o.mcp, a.environ, log)
		if err != nil {
			return fmt.Errorf("--mcp %q cannot be started: %w", o.mcp, err)
		}
		switch err := c.RunMCP(ctx, server); {
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, client.ErrServer):
			return o.unpaired(err)
		}
		if time.Since(begin) >= stableServer {
			delay = minServerDelay
		}
		log.Warn("the MCP server has ended", "exit", server.exit(), "retry_in", delay.String())
		if pause.For(ctx, delay) != nil {
			return nil
		}
		delay = min(2*delay, maxServerDelay)
	}
}

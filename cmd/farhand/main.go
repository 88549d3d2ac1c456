// Command farhand runs the gateway, makes this machine a device, and calls tools from the terminal.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/cobra"

	"github.com/farhand/farhand/agent/sandbox/host"
	"github.com/farhand/farhand/cmd/farhand/bench"
	"github.com/farhand/farhand/registry/textsafe"
)

// Exit codes: 0 done, 1 a tool ran and failed, 2 everything else.
const (
	exitToolFailed = 1
	exitError      = 2
)

// errToolFailed ends `farhand call` after the output was printed.
var errToolFailed = errors.New("the tool failed")

func main() {
	self := host.Main() // before anything else
	// The HTTP client of the standard library writes there what a server sends unasked, which may quote credentials.
	log.SetOutput(io.Discard)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	app := application{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		environ: os.Environ(), program: invocation(os.Args), args: os.Args[1:], self: self,
	}
	os.Exit(app.run(ctx))
}

// application is the program with its environment, which tests replace.
type application struct {
	in       io.Reader
	out, err io.Writer
	environ  []string
	program  string // as a user types it; default farhand
	args     []string
	self     host.Program // zero: it cannot run other programs
}

// run executes the command line and returns the exit code.
func (a *application) run(ctx context.Context) int {
	root := a.rootCommand()
	root.SetArgs(a.args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	switch err := root.ExecuteContext(ctx); {
	case err == nil:
		return 0
	case errors.Is(err, errToolFailed), errors.Is(err, errAnsweredNo):
		return exitToolFailed
	default:
		fmt.Fprintln(a.err, "farhand:", printable(err.Error()))
		return exitError
	}
}

func (a *application) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "farhand",
		Short: "Connect AI agents to the tools of any device",
		Long: "Farhand is a gateway between AI agents and devices. Devices dial out over WebSocket and register\n" +
			"tools; agents call those tools over HTTP on any pod of the fleet.",
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(
		a.serveCommand(), a.demoCommand(), a.deviceCommand(), a.callCommand(), a.approveCommand(), a.pairCommand(),
		a.devicesCommand(), a.queueCommand(), a.chatCommand(), a.toolsCommand(),
		a.sessionsCommand(), a.configCommand(), a.healthCommand(), a.versionCommand(), a.benchCommand(),
		a.planCommand(), a.policyCommand(), a.doctorCommand(), a.usageCommand(), a.auditCommand(), a.keysCommand(),
		a.tenantsCommand(), a.mcpCommand(),
		a.exportCommand(), a.importCommand(),
		a.eraseCommand(),
	)
	explainArguments(root)
	return root
}

// explainArguments makes each command below parent print its usage if the number of arguments is wrong.
func explainArguments(parent *cobra.Command) {
	for _, cmd := range parent.Commands() {
		explainArguments(cmd)
		check := cmd.Args
		if check == nil || !cmd.Runnable() || cmd.HasSubCommands() {
			continue
		}
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if check(cmd, args) == nil {
				return nil
			}
			return fmt.Errorf("wrong number of arguments: %d, want %s\n  Put arguments with spaces in quotes; "+
				"see farhand help %s", len(args), cmd.UseLine(),
				strings.TrimPrefix(cmd.CommandPath(), "farhand "))
		}
	}
}

// release and commit are set by release builds: -ldflags "-X main.release=v1.2.3 -X main.commit=…".
var release, commit = "", ""

// version returns the release, or else the version that the Go toolchain recorded.
func version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}

// revision returns what this program was built from: the commit of a release or of a working tree, else the checksum of
// the module that `go install` fetched.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	found, changed := commit, ""
	if found != "" || !ok {
		return "commit " + cmp.Or(found, "unknown")
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			found = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = " with changes"
		}
	}
	if found == "" && info.Main.Sum != "" {
		return "module " + info.Main.Sum
	}
	return "commit " + cmp.Or(found, "unknown") + changed
}

func (a *application) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print version, commit, Go version and platform of this program",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "farhand %s, %s, %s, %s/%s\n", version(), revision(),
				runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// newLogger returns the logger of a server. Format auto is text on a terminal and JSON elsewhere.
func newLogger(w io.Writer, level slog.Leveler, format string) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if format == "text" || format == "auto" && isTerminal(w) {
		return slog.New(slog.NewTextHandler(safeLines{w}, opts))
	}
	return slog.New(slog.NewJSONHandler(safeLines{w}, opts))
}

// safeLines writes the lines of a log. They may quote devices, so control and invisible characters are made visible.
type safeLines struct{ w io.Writer }

// Write implements io.Writer.
func (l safeLines) Write(line []byte) (int, error) {
	if _, err := io.WriteString(l.w, textsafe.Expose(string(line))); err != nil {
		return 0, err
	}
	return len(line), nil
}

// safeOn returns a writer that makes control and invisible characters visible if w is a terminal. It returns w
// itself for a file or a pipe, which get the bytes unchanged.
func safeOn(w io.Writer) io.Writer {
	if isTerminal(w) {
		return safeLines{w}
	}
	return w
}

// isTerminal reports whether a stream is most likely a person's terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull) // the standard input of what starts by itself
	return err != nil || !os.SameFile(info, null)
}

// healthTimeout bounds a health check. An image's HEALTHCHECK has its own, longer timeout.
const healthTimeout = 3 * time.Second

func (a *application) healthCommand() *cobra.Command {
	var r remote
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Check whether a gateway is ready (for container health checks)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), healthTimeout)
			defer cancel()
			return r.call(ctx, http.MethodGet, "/readyz", nil)
		},
	}
	r.flags(cmd.Flags(), a.environ)
	// In a container the check runs with the pod's environment, which has the pod's address.
	if vars := env.ToMap(a.environ); vars[envPrefix+"URL"] == "" && vars[envPrefix+"ADDR"] != "" {
		flag := cmd.Flags().Lookup("server")
		r.server = urlOf(vars[envPrefix+"ADDR"])
		flag.DefValue, flag.Usage = r.server, "URL of the gateway, or its host:port (FARHAND_URL, else FARHAND_ADDR)"
	}
	return cmd
}

// urlOf returns the URL by which a process on the same machine reaches a listener on addr.
func urlOf(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "http://" + addr
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip.Is6() {
			host = "::1"
		}
	}
	return "http://" + net.JoinHostPort(host, port)
}

func (a *application) benchCommand() *cobra.Command {
	o := bench.DefaultOptions()
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure running pods",
		Long: "Connects devices to running pods over WebSocket, calls them over HTTP, checks every answer, and\n" +
			"prints rates and latencies for each route and number of callers. Run it on another machine than\n" +
			"the pods, unless you only compare figures of the same run.",
		Example: "farhand bench --pods http://10.0.0.1:8080,http://10.0.0.2:8080 --callers 64,512 --duration 10s",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out, o.Err, o.Terminal = a.out, a.err, isTerminal(a.err)
			var err error
			if !cmd.Flags().Changed("token") {
				o.Token, err = tokenOf(env.ToMap(a.environ))
			}
			if err != nil {
				return err
			}
			return bench.Run(cmd.Context(), o, asJSON)
		},
	}
	f := cmd.Flags()
	o.Flags(f)
	f.StringSliceVar(&o.Pods, "pods", nil,
		"URLs of running pods, comma-separated: the first holds the devices, the second gets the calls of route cross")
	f.StringSliceVar(&o.Routes, "route", o.Routes, "routes: local, cross")
	f.StringVar(&o.Token, "token", "", "bearer token of the pods (FARHAND_TOKEN, or the file FARHAND_TOKEN_FILE)")
	f.StringVar(&o.Redis, "redis", "", "URL of the pods' Redis, to show its CPU and memory")
	f.IntSliceVar(&o.PIDs, "pids", nil,
		"process ids of pods on this machine, to show their CPU and memory")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

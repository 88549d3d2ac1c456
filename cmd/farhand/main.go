// Command farhand runs the gateway, makes this machine a device, and calls tools from the terminal.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/farhand/farhand/agent/sandbox/host"
)

// Exit codes: 0 done, 1 a tool ran and failed, 2 everything else.
const (
	exitToolFailed = 1
	exitError      = 2
)

// errToolFailed ends `farhand call` after its output has been printed.
var errToolFailed = errors.New("the tool failed")

func main() {
	self := host.Main() // before anything else
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	app := application{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		environ: os.Environ(), program: invocation(os.Args), args: os.Args[1:], self: self,
	}
	os.Exit(app.run(ctx))
}

// application is the program with its surroundings, which tests replace.
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
		Short: "Gives AI agents hands on any device",
		Long: "Farhand is a gateway between AI agents and devices. Devices dial out over WebSocket and register\n" +
			"tools; agents call those tools over HTTP on any pod of the fleet.",
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(
		a.serveCommand(), a.demoCommand(), a.deviceCommand(), a.callCommand(), a.approveCommand(), a.pairCommand(),
		a.devicesCommand(), a.chatCommand(), a.toolsCommand(),
		a.sessionsCommand(), a.configCommand(), a.healthCommand(), a.versionCommand(), a.benchCommand(),
		a.policyCommand(), a.doctorCommand(), a.usageCommand(), a.auditCommand(), a.keysCommand(), a.mcpCommand(),
	)
	explainArguments(root)
	return root
}

// explainArguments has each command below one say how it is written when it gets another number of arguments.
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
			return fmt.Errorf("%d arguments are not what this takes: %s\n  Put an argument with spaces in quotes; "+
				"farhand help %s says more", len(args), cmd.UseLine(),
				strings.TrimPrefix(cmd.CommandPath(), "farhand "))
		}
	}
}

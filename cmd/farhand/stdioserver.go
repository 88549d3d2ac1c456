package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/cmd/farhand/mcpbridge"
	"github.com/farhand/farhand/internal/procgroup"
)

// logLimit bounds the lines of a server's standard error that are logged in logPeriod.
const (
	logLimit  = 200
	logPeriod = 10 * time.Second
)

// serverGrace is how long an MCP server may run after its input has ended.
const serverGrace = 2 * time.Second

// stdioServer is a command that speaks MCP over its standard input and output. All processes it started end with it. On
// systems without an engine for programs, only its process group does.
type stdioServer struct {
	in    *os.File
	out   *io.PipeReader
	kill  context.CancelFunc
	ended chan struct{} // closed when the command and its processes have ended
	how   string        // how it ended; read after ended
	close func()
	tasks sync.WaitGroup
}

// startStdioServer starts a command with an environment, without this program's settings such as its token. engine may
// be nil. Close must be called.
func startStdioServer(
	engine sandbox.Engine, command string, environ []string, log *slog.Logger,
) (*stdioServer, error) {
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	stdin, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, stdout := io.Pipe()
	lines, stderr := io.Pipe()
	ctx, kill := context.WithCancel(context.Background())
	s := &stdioServer{in: in, out: out, kill: kill, ended: make(chan struct{})}
	s.close = sync.OnceFunc(s.end)
	cmd := shellCommand(ctx, command)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	cmd.Env = slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		return strings.HasPrefix(kv, envPrefix)
	})
	wait := func() string {
		return supervise(ctx, engine, sandbox.Workspace{ID: "mcp", Dir: here, UID: os.Getuid(), GID: os.Getgid()},
			sandbox.Command{
				Args: cmd.Args, Env: cmd.Env, Stdin: stdin, Stdout: stdout, Stderr: stderr, Elevated: true,
			})
	}
	if engine == nil {
		group, err := procgroup.Start(cmd)
		_ = stdin.Close()
		if err != nil {
			kill()
			_ = in.Close()
			return nil, err
		}
		wait = func() string {
			_ = group.Wait()
			return cmd.ProcessState.String()
		}
	}
	s.tasks.Go(func() {
		defer kill()
		s.how = wait()
		close(s.ended)
		_, _ = stdout.Close(), stderr.Close()
	})
	s.tasks.Go(func() { logLines(lines, log) })
	return s, nil
}

// supervise runs a command under a supervisor, and returns how it ended. The supervisor ends all processes the command
// starts, including those that leave its group, and also if this program is killed.
func supervise(ctx context.Context, engine sandbox.Engine, in sandbox.Workspace, cmd sandbox.Command) string {
	exit, err := engine.Run(ctx, in, cmd)
	switch {
	case err != nil:
		return err.Error()
	case exit.Signal != "":
		return "signal: " + exit.Signal
	}
	return fmt.Sprintf("exit status %d", exit.Code)
}

// shellCommand returns a command for a line of the system's shell. A process that has left its group may hold the
// output for serverGrace.
func shellCommand(ctx context.Context, line string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", line)
	if runtime.GOOS == "windows" {
		cmd = exec.CommandContext(ctx, "cmd", "/c", line)
	}
	cmd.WaitDelay = serverGrace
	return cmd
}

// Read implements io.Reader.
func (s *stdioServer) Read(p []byte) (int, error) { return s.out.Read(p) }

// Write implements io.Writer.
func (s *stdioServer) Write(p []byte) (int, error) { return s.in.Write(p) }

// Close ends the command and everything it started.
func (s *stdioServer) Close() error {
	s.close()
	return nil
}

func (s *stdioServer) end() {
	_ = s.in.Close()
	s.tasks.Go(func() { _, _ = io.Copy(io.Discard, s.out) }) // it may have more to say before it ends
	grace := time.AfterFunc(serverGrace, s.kill)
	defer grace.Stop()
	<-s.ended
	_ = s.out.Close()
	s.tasks.Wait()
}

// exit closes the server and returns how the command ended.
func (s *stdioServer) exit() string {
	s.close()
	return s.how
}

// logLines logs the standard error of a command. It truncates long lines, and drops lines beyond logLimit.
func logLines(stderr io.Reader, log *slog.Logger) {
	const longest = 4 << 10
	lines, began, logged := bufio.NewReaderSize(stderr, longest), time.Now(), 0
	period := func() {
		if logged > logLimit {
			log.Warn("MCP server: lines of stderr were left out", "lines", logged-logLimit)
		}
		began, logged = time.Now(), 0
	}
	defer period()
	for {
		line, more, err := lines.ReadLine()
		if err != nil {
			return
		}
		if time.Since(began) >= logPeriod {
			period()
		}
		if logged++; logged <= logLimit {
			log.Info("MCP server", "stderr", string(line))
		}
		for more && err == nil {
			_, more, err = lines.ReadLine()
		}
	}
}

func (a *application) mcpCommand() *cobra.Command {
	var r remote
	var session, user string
	var search bool
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Serve MCP on standard input and output, for clients that start commands",
		Long: "Serves MCP on standard input and output, for desktop clients that only start commands. The\n" +
			"gateway answers the requests; its tools are those of the connected devices. Clients that speak\n" +
			"MCP over HTTP use the gateway's URL with /mcp instead.\n\n" +
			"Set the token as FARHAND_TOKEN in the environment of the command.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			endpoint := r.base() + "/mcp"
			switch {
			case session != "" && user != "":
				return errors.New("--session and --user exclude each other")
			case session != "":
				endpoint += "/sessions/" + url.PathEscape(session)
			case user != "":
				endpoint += "/users/" + url.PathEscape(user)
			}
			if search {
				endpoint += "?tools=search"
			}
			client, err := r.trust.client()
			if err != nil {
				return err
			}
			token, err := r.bearer()
			if err != nil {
				return err
			}
			cfg := mcpbridge.Config{URL: endpoint, Token: token, Client: client, Log: a.err}
			return mcpbridge.Run(cmd.Context(), cfg, a.in, a.out)
		},
	}
	f := cmd.Flags()
	r.flags(f, a.environ)
	f.StringVar(&session, "session", "", "offer only this session's tools")
	f.StringVar(&user, "user", "", "offer only the tools of this user's devices")
	f.BoolVar(&search, "search", false, "offer search_tools and call_tool instead of every tool, for large fleets")
	return cmd
}

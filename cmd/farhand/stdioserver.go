package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
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
	wait   func() string // waits until the command and its processes have ended, and returns how it ended
	kill   func()
	in     *os.File
	out    *os.File
	stderr *os.File
	log    *slog.Logger
	ended  chan struct{} // closed when the command has ended
	how    string        // how it ended; read after ended
	close  func()
	tasks  sync.WaitGroup
}

// startStdioServer starts a command with an environment, without this program's settings such as its token. engine may
// be nil. Close must be called.
func startStdioServer(
	engine sandbox.Engine, command string, environ []string, log *slog.Logger,
) (*stdioServer, error) {
	s := &stdioServer{log: log, ended: make(chan struct{})}
	cmd := shellCommand(command)
	cmd.Env = slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		return strings.HasPrefix(kv, envPrefix)
	})
	s.close = sync.OnceFunc(s.end)
	// With pipes made here the command's end is known immediately, even if other processes hold its output.
	files, err := pipes(3)
	if err != nil {
		return nil, err
	}
	cmd.Stdin, s.in = files[0], files[1]
	s.out, cmd.Stdout = files[2], files[3]
	s.stderr, cmd.Stderr = files[4], files[5]
	if engine != nil {
		err = s.supervise(engine, cmd, files[0], files[3], files[5])
	} else {
		err = s.lead(cmd)
		for _, theirs := range []*os.File{files[0], files[3], files[5]} {
			_ = theirs.Close()
		}
	}
	if err != nil {
		for _, ours := range []*os.File{s.in, s.out, s.stderr} {
			_ = ours.Close()
		}
		return nil, err
	}
	s.tasks.Go(func() {
		s.how = s.wait()
		close(s.ended)
		_ = s.out.SetReadDeadline(time.Now().Add(serverGrace)) // a process that left the group may still hold it
	})
	s.tasks.Go(s.logLines)
	return s, nil
}

// lead starts the command as the leader of a process group.
func (s *stdioServer) lead(cmd *exec.Cmd) error {
	group, err := procgroup.Start(cmd)
	if err != nil {
		return err
	}
	s.kill = func() { _ = group.Kill() }
	s.wait = func() string {
		_ = group.Wait()
		return cmd.ProcessState.String()
	}
	return nil
}

// supervise starts the command under a supervisor. The supervisor ends all processes the command starts, including
// those that leave its group, and also if this program is killed. supervise closes the command's ends of the pipes when
// the command has ended, or immediately if it cannot be started.
func (s *stdioServer) supervise(engine sandbox.Engine, cmd *exec.Cmd, in, out, stderr *os.File) error {
	here, err := os.Getwd()
	if err != nil {
		_, _, _ = in.Close(), out.Close(), stderr.Close()
		return err
	}
	ctx, kill := context.WithCancel(context.Background())
	s.kill = kill
	s.wait = func() string {
		defer kill()
		exit, err := engine.Run(ctx, sandbox.Workspace{ID: "mcp", Dir: here, UID: os.Getuid(), GID: os.Getgid()},
			sandbox.Command{
				Args: cmd.Args, Env: cmd.Env, Stdin: in, Stdout: out, Stderr: stderr, Elevated: true,
			})
		_, _ = out.Close(), stderr.Close()
		switch {
		case err != nil:
			return err.Error()
		case exit.Signal != "":
			return "signal: " + exit.Signal
		}
		return fmt.Sprintf("exit status %d", exit.Code)
	}
	return nil
}

// shellCommand returns a command that runs a line in the system's shell.
func shellCommand(line string) *exec.Cmd {
	if runtime.GOOS == "windows" {
		return exec.Command("cmd", "/c", line)
	}
	return exec.Command("/bin/sh", "-c", line)
}

// pipes returns n pipes: for each the read end, then the write end.
func pipes(n int) ([]*os.File, error) {
	var files []*os.File
	for range n {
		r, w, err := os.Pipe()
		if err != nil {
			for _, f := range files {
				_ = f.Close()
			}
			return nil, err
		}
		files = append(files, r, w)
	}
	return files, nil
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
	grace := time.NewTimer(serverGrace)
	defer grace.Stop()
	select {
	case <-s.ended:
	case <-grace.C:
		s.kill()
		_ = s.out.Close() // its readers end
		_ = s.stderr.Close()
		<-s.ended
	}
	_ = s.out.Close()
	_ = s.stderr.Close() // a process that left the group may still hold it
	s.tasks.Wait()
}

// exit closes the server and returns how the command ended.
func (s *stdioServer) exit() string {
	s.close()
	return s.how
}

// logLines logs the command's standard error. It truncates long lines, and drops lines beyond logLimit.
func (s *stdioServer) logLines() {
	const longest = 4 << 10
	lines, began, logged := bufio.NewReaderSize(s.stderr, longest), time.Now(), 0
	period := func() {
		if logged > logLimit {
			s.log.Warn("MCP server: lines of stderr were left out", "lines", logged-logLimit)
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
			s.log.Info("MCP server", "stderr", string(line))
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
		Short: "Be an MCP server on standard input and output, for clients that start commands",
		Long: "Be an MCP server on standard input and output, for desktop clients that only start commands: what\n" +
			"such a client asks, the gateway answers, and its tools are those of the connected devices. Clients\n" +
			"that speak MCP over HTTP need no command: their URL is that of the gateway with /mcp behind it.\n\n" +
			"The token is best given as FARHAND_TOKEN, in the environment that the client starts the command with.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			endpoint := r.base() + "/mcp"
			switch {
			case session != "" && user != "":
				return errors.New("--session and --user are two scopes: give one of them")
			case session != "":
				endpoint += "/sessions/" + url.PathEscape(session)
			case user != "":
				endpoint += "/users/" + url.PathEscape(user)
			}
			if search {
				endpoint += "?tools=search"
			}
			cfg := mcpbridge.Config{URL: endpoint, Token: r.token, Log: a.err}
			return mcpbridge.Run(cmd.Context(), cfg, a.in, a.out)
		},
	}
	f := cmd.Flags()
	r.flags(f, a.environ)
	f.StringVar(&session, "session", "", "offer the tools of this session only")
	f.StringVar(&user, "user", "", "offer the tools of this user's devices only")
	f.BoolVar(&search, "search", false, "offer search_tools and call_tool instead of every tool, for large fleets")
	return cmd
}

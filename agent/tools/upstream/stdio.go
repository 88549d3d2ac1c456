package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/internal/procgroup"
	"github.com/farhand/farhand/registry"
)

const (
	grace        = 2 * time.Second  // for a program to exit after its input is closed
	writeTimeout = 10 * time.Second // for a program to read a message
	maxStderr    = 1 << 10          // bytes of its stderr that are kept

	sandboxPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// program is a server that this pod has started. Its supervisor kills it and its children, also when the pod is killed.
type program struct {
	stdin  *os.File
	stdout *io.PipeReader
	stderr *procgroup.Tail
	kill   context.CancelFunc
	ended  chan struct{} // closed when the program and its children have ended
	err    error         // how it ended; read after ended
}

// start starts the program of a server. The program ends when conn, the context of the connection, ends.
func (c *Config) start(conn context.Context, s *Server) (*program, error) {
	engine, why := c.Host, c.NoHost
	if s.Sandbox {
		engine, why = c.Sandbox, c.NoSandbox
	}
	if engine == nil {
		return nil, fmt.Errorf("programs cannot run: %s", why)
	}
	space, remove, err := c.space(conn, s)
	if err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		remove()
		return nil, err
	}
	ctx, kill := context.WithCancel(conn)
	stdout, output := io.Pipe()
	p := &program{
		stdin: write, stdout: stdout, stderr: procgroup.NewTail(maxStderr), kill: kill, ended: make(chan struct{}),
	}
	command := s.command(space)
	command.Stdin, command.Stdout, command.Stderr, command.Limits = read, output, p.stderr, sandbox.Limits{}
	if s.Sandbox {
		command.Limits = c.Limits
	}
	go func() { // ends with kill
		exit, err := engine.Run(ctx, space, command)
		if p.err = err; err == nil {
			p.err = fmt.Errorf("the program exited with code %d", exit.Code)
		}
		remove()
		close(p.ended) // before readers see EOF
		output.CloseWithError(io.EOF)
	}()
	return p, nil
}

// space returns the workspace of a program. Without a sandbox, it is an empty folder, removed when the program has
// ended.
func (c *Config) space(ctx context.Context, s *Server) (sandbox.Workspace, func(), error) {
	if s.Sandbox {
		if c.Workspaces == nil {
			return sandbox.Workspace{}, nil, errors.New("workspaces are off on this gateway")
		}
		space, err := c.Workspaces.Find(sessionOf(s.Name), registry.Place{}).Open(ctx)
		return space, func() {}, err
	}
	dir, err := os.MkdirTemp("", "farhand-mcp-")
	if err != nil {
		return sandbox.Workspace{}, nil, err
	}
	w := sandbox.Workspace{ID: "mcp", Dir: dir, UID: os.Getuid(), GID: os.Getgid()}
	return w, func() { _ = os.RemoveAll(dir) }, nil
}

func sessionOf(server string) agent.SessionID {
	return agent.SessionID{Identity: "mcp:" + server, Sandboxed: true}
}

// command returns the command to run. A program gets only PATH and HOME of the gateway's environment.
func (s *Server) command(w sandbox.Workspace) sandbox.Command {
	env := []string{"PATH=" + sandboxPath, "HOME=" + w.Dir}
	if s.Sandbox {
		return sandbox.Command{Args: s.Command, Dir: s.Dir, Env: withEnv(env, s.Env)}
	}
	if path := os.Getenv("PATH"); path != "" {
		env[0] = "PATH=" + path
	}
	if home, err := os.UserHomeDir(); err == nil {
		env[1] = "HOME=" + home
	}
	c := sandbox.Command{Args: s.Command, Env: withEnv(env, s.Env), Elevated: true}
	if s.Dir != "" {
		c.Args = append([]string{"/bin/sh", "-c", `cd "$0" && exec "$@"`, s.Dir}, s.Command...)
	}
	return c
}

// withEnv returns env with the listed variables added. They replace variables of the same name.
func withEnv(env, listed []string) []string {
	env = slices.DeleteFunc(env, func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.ContainsFunc(listed, func(l string) bool { return strings.HasPrefix(l, name+"=") })
	})
	return append(env, listed...)
}

// deadlineWriter writes to a program with a deadline of writeTimeout. If the program does not read in time, the
// connection ends, and with it all pending writes.
type deadlineWriter struct {
	*os.File
	conn *connection
}

func (w deadlineWriter) Write(b []byte) (int, error) {
	_ = w.SetWriteDeadline(time.Now().Add(writeTimeout))
	n, err := w.File.Write(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.conn.end(errNotReading)
	}
	return n, err
}

// close ends the program: it closes its input, and kills it after grace.
func (p *program) close() {
	p.stdin.Close()
	_ = p.stdout.CloseWithError(io.EOF) // further output kills it (EPIPE)
	defer time.AfterFunc(grace, p.kill).Stop()
	<-p.ended // the engine bounds the wait
	p.kill()
}

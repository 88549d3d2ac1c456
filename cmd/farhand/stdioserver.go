package main

import (
	"bufio"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/procgroup"
)

// serverGrace is how long an MCP server may take to end once its input has ended.
const serverGrace = 2 * time.Second

// stdioServer is a command that speaks MCP over its standard input and output. It runs in a process group of its own,
// which ends with it.
type stdioServer struct {
	cmd    *exec.Cmd
	group  *procgroup.Group
	in     *os.File
	out    *os.File
	stderr *os.File
	log    *slog.Logger
	ended  chan struct{} // closed when the command has ended
	close  func()
	tasks  sync.WaitGroup
}

// startStdioServer starts a command with an environment, but for the settings of this program, such as its token. Close
// must be called.
func startStdioServer(command string, environ []string, log *slog.Logger) (*stdioServer, error) {
	s := &stdioServer{cmd: shellCommand(command), log: log, ended: make(chan struct{})}
	s.cmd.Env = slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		return strings.HasPrefix(kv, envPrefix)
	})
	s.close = sync.OnceFunc(s.end)
	// Pipes of our own: the command's end is known at once, whoever it left its output to.
	files, err := pipes(3)
	if err != nil {
		return nil, err
	}
	s.cmd.Stdin, s.in = files[0], files[1]
	s.out, s.cmd.Stdout = files[2], files[3]
	s.stderr, s.cmd.Stderr = files[4], files[5]
	s.group, err = procgroup.Start(s.cmd)
	for _, theirs := range []*os.File{files[0], files[3], files[5]} {
		_ = theirs.Close()
	}
	if err != nil {
		for _, ours := range []*os.File{s.in, s.out, s.stderr} {
			_ = ours.Close()
		}
		return nil, err
	}
	s.tasks.Go(func() {
		_ = s.group.Wait() // exit tells it
		close(s.ended)
		_ = s.out.SetReadDeadline(time.Now().Add(serverGrace)) // a process that has left the group may have it yet
	})
	s.tasks.Go(s.logLines)
	return s, nil
}

// shellCommand returns a command line of this system's shell.
func shellCommand(line string) *exec.Cmd {
	if runtime.GOOS == "windows" {
		return exec.Command("cmd", "/c", line)
	}
	return exec.Command("/bin/sh", "-c", line)
}

// pipes returns n pipes: the reading end of each, then the writing end.
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

// Close ends the command, and everything it started.
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
		_ = s.group.Kill()
		<-s.ended
	}
	_ = s.out.Close()
	_ = s.stderr.Close() // a process that has left the group may have it yet
	s.tasks.Wait()
}

// exit says how the command ended, once Close has returned.
func (s *stdioServer) exit() string {
	s.close()
	return s.cmd.ProcessState.String()
}

// logLines logs what the command says on standard error. Long lines are cut.
func (s *stdioServer) logLines() {
	const longest = 4 << 10
	lines := bufio.NewReaderSize(s.stderr, longest)
	for {
		line, more, err := lines.ReadLine()
		if err != nil {
			return
		}
		s.log.Info("MCP server", "stderr", string(line))
		for more && err == nil {
			_, more, err = lines.ReadLine()
		}
	}
}

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// starter starts commands. They inherit the restrictions of its thread. For a command with Landlock that is a separate
// thread, because a thread is confined to one workspace permanently. Otherwise it is the supervisor's only thread. The
// thread lives as long as the command. If it ends early, because the supervisor was killed, the kernel kills the
// command (Pdeathsig).
type starter struct {
	own      chan func() // functions for the separate thread; nil: no such thread
	done     chan struct{}
	confined bool
	scoped   bool // signals of the thread only reach its commands
}

// begin prepares for a command; with Landlock, it starts a separate thread.
func (s *starter) begin(r request) {
	if !r.Landlock {
		return
	}
	*s = starter{own: make(chan func()), done: make(chan struct{})}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for f := range s.own {
			f()
			s.done <- struct{}{}
		}
	}()
}

// end releases the thread. No process of the command is left then.
func (s *starter) end() {
	if s.own != nil {
		close(s.own)
		*s = starter{}
	}
}

// do calls f on the starter's thread.
func (s *starter) do(f func()) {
	if s.own == nil {
		f()
		return
	}
	s.own <- f
	<-s.done
}

// start starts a command with its limits, and returns its pid.
func (s *starter) start(r request, files []*os.File) (pid int, err error) {
	s.do(func() {
		if !s.confined {
			if s.scoped, err = confine(r, files[fdWorkspace]); err != nil {
				return
			}
			s.confined = true
		}
		pid, err = startHere(r, files)
	})
	return pid, err
}

// kill kills all commands of this thread atomically. It returns false, and kills none, if signals are not scoped.
func (s *starter) kill() bool {
	if s.scoped {
		s.do(func() { unix.Kill(-1, unix.SIGKILL) })
	}
	return s.scoped
}

// startHere starts a command on the current thread.
func startHere(r request, files []*os.File) (int, error) {
	attr := &syscall.ProcAttr{
		Env:   r.Env,
		Files: []uintptr{0, files[fdStdout].Fd(), files[fdStderr].Fd()}, // 0 is /dev/null
		// With ptrace the process stops before its first instruction, so that its limits apply from the start.
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Ptrace: true},
	}
	if r.Stdin {
		attr.Files[0] = files[fdStdin].Fd()
	}
	if r.Drop {
		attr.Sys.Credential = &syscall.Credential{Uid: uint32(r.UID), Gid: uint32(r.GID)}
	}
	pid, err := execute(r, attr)
	if err != nil {
		return 0, err
	}
	var status syscall.WaitStatus
	err = retry(func() error { _, err := syscall.Wait4(pid, &status, 0, nil); return err })
	if err == nil && status.Stopped() {
		limited := make(chan error, 1)
		if r.Landlock { // a confined thread can only limit itself
			go func() {
				runtime.LockOSThread()
				limited <- limit(pid, r)
			}()
		} else {
			limited <- limit(pid, r)
		}
		if err = <-limited; err == nil {
			err = syscall.PtraceDetach(pid)
		}
	}
	if err != nil {
		syscall.Kill(pid, syscall.SIGKILL)
		syscall.Wait4(pid, nil, 0, nil)
		return 0, fmt.Errorf("the limits of the command: %w", err)
	}
	return pid, nil
}

// execute starts the program by its path, or the first program of that name in PATH.
func execute(r request, attr *syscall.ProcAttr) (int, error) {
	var paths []string
	if strings.Contains(r.Args[0], "/") {
		paths = []string{r.Args[0]}
	} else {
		for _, v := range r.Env {
			list, ok := strings.CutPrefix(v, "PATH=")
			if !ok {
				continue
			}
			paths = nil // the last PATH wins
			for _, dir := range filepath.SplitList(list) {
				if filepath.IsAbs(dir) {
					paths = append(paths, filepath.Join(dir, r.Args[0]))
				}
			}
		}
	}
	found := fmt.Errorf("%s: %w", r.Args[0], fs.ErrNotExist)
	for _, path := range paths {
		info, err := os.Stat(path)
		if err == nil && info.IsDir() {
			err = unix.EISDIR
		}
		pid := 0
		if err == nil {
			pid, err = syscall.ForkExec(path, r.Args, attr)
		}
		switch {
		case err == nil:
			return pid, nil
		case !isNoProgram(err):
			return 0, fmt.Errorf("%s: %w", path, err)
		case !errors.Is(err, fs.ErrNotExist):
			found = fmt.Errorf("%s: %w", path, err)
		}
	}
	return 0, found
}

// isNoProgram reports whether a start failed because the file is missing or not executable.
func isNoProgram(err error) bool {
	return slices.ContainsFunc([]error{
		unix.ENOENT, unix.EACCES, unix.ENOTDIR, unix.EISDIR, unix.ENOEXEC, unix.ELOOP, unix.ENAMETOOLONG,
		fs.ErrNotExist,
	}, func(target error) bool { return errors.Is(err, target) })
}

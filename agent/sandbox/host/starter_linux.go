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

// starter starts commands. What its thread gives up, they never have. That is the supervisor's one thread, or, for a
// command with Landlock, one of its own, because a thread is confined to one workspace and never freed of it. It lives
// as long as the command: when it ends too early, because somebody killed the supervisor, the kernel kills the command
// (Pdeathsig).
type starter struct {
	own      chan func() // what to do on a thread of its own; nil: there is none
	done     chan struct{}
	confined bool
	scoped   bool // signals of the thread reach its commands only
}

// begin begins a command's time.
func (s *starter) begin(r request) {
	if !r.Landlock {
		return
	}
	*s = starter{own: make(chan func()), done: make(chan struct{})}
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		for f := range s.own {
			f()
			s.done <- struct{}{}
		}
	}()
}

// end ends it. Nothing of the command is left then.
func (s *starter) end() {
	if s.own != nil {
		close(s.own)
		*s = starter{}
	}
}

// do does something on the starter's thread.
func (s *starter) do(f func()) {
	if s.own == nil {
		f()
		return
	}
	s.own <- f
	<-s.done
}

// start starts a command and returns its process, which runs with its limits then.
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

// kill kills all commands of this thread at once, and reports whether it can.
func (s *starter) kill() bool {
	if s.scoped {
		s.do(func() { unix.Kill(-1, unix.SIGKILL) })
	}
	return s.scoped
}

// startHere starts a command on this thread.
func startHere(r request, files []*os.File) (int, error) {
	attr := &syscall.ProcAttr{
		Env:   r.Env,
		Files: []uintptr{0, files[fdStdout].Fd(), files[fdStderr].Fd()}, // 0 is /dev/null
		// Traced, it stops before its first instruction, so that its limits hold from there.
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
		if r.Landlock { // this thread may limit itself only
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

// execute starts the program, or the first of its name in PATH.
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
			paths = nil // the last one counts
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

// isNoProgram reports whether a program cannot be started because of what its file is.
func isNoProgram(err error) bool {
	return slices.ContainsFunc([]error{
		unix.ENOENT, unix.EACCES, unix.ENOTDIR, unix.EISDIR, unix.ENOEXEC, unix.ELOOP, unix.ENAMETOOLONG,
		fs.ErrNotExist,
	}, func(target error) bool { return errors.Is(err, target) })
}

package host

import (
	"crypto/rand"
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

// runCommand runs a command to its end, or until gone is closed, and returns once nothing of it is left.
func runCommand(r request, files []*os.File, gone <-chan struct{}) answer {
	workspace, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", files[fdWorkspace].Fd()))
	if err == nil {
		err = files[fdDir].Chdir()
	}
	defer os.Chdir("/")
	temp := ".tmp-" + rand.Text()
	if err == nil {
		defer workspace.Close()
		err = makeTemp(workspace, temp, r)
	}
	if err != nil {
		for _, f := range files {
			f.Close()
		}
		return answer{Error: err.Error()}
	}
	defer removeTemp(workspace, temp)
	r.Env = slices.DeleteFunc(r.Env, func(v string) bool { return strings.HasPrefix(v, "TMPDIR=") })
	r.Env = append(r.Env, "TMPDIR="+filepath.Join(r.Workspace, temp))

	t := newTree()
	ended := make(chan struct{})
	defer close(ended)
	started := make(chan error)
	go func() {
		// What this thread gives up, the command never has. It is never unlocked, so it ends with the goroutine, and
		// with it, should it end too early, the command (Pdeathsig).
		runtime.LockOSThread()
		started <- t.start(r, files)
		<-ended
	}()
	err = <-started
	for _, f := range files {
		f.Close()
	}
	switch {
	case err == nil:
		return t.wait(r, gone)
	case isNoProgram(err):
		return answer{NoProgram: true, Error: err.Error()}
	}
	return answer{Error: err.Error()}
}

// start starts a command on this thread, with its limits.
func (t *tree) start(r request, files []*os.File) error {
	if err := confine(r, files[fdWorkspace]); err != nil {
		return err
	}
	attr := &syscall.ProcAttr{
		Env:   r.Env,
		Files: []uintptr{0, files[fdStdout].Fd(), files[fdStderr].Fd()}, // 0 is /dev/null
		// Traced, it stops before its first instruction, so that its limits hold from there.
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Ptrace: true},
	}
	if r.Drop {
		attr.Sys.Credential = &syscall.Credential{Uid: uint32(r.UID), Gid: uint32(r.GID)}
	}
	pid, err := execute(r, attr)
	if err != nil {
		return err
	}
	var status syscall.WaitStatus
	for {
		if _, err = syscall.Wait4(pid, &status, 0, nil); err != syscall.EINTR {
			break
		}
	}
	if err == nil && status.Stopped() {
		if err = limit(pid, r); err == nil {
			err = syscall.PtraceDetach(pid)
		}
	}
	if err != nil {
		syscall.Kill(pid, syscall.SIGKILL)
		syscall.Wait4(pid, nil, 0, nil)
		return fmt.Errorf("the limits of the command: %w", err)
	}
	t.main = pid
	return nil
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
		unix.ENOENT, unix.EACCES, unix.ENOTDIR, unix.EISDIR, unix.ENOEXEC, unix.ELOOP, unix.ENAMETOOLONG, fs.ErrNotExist,
	}, func(target error) bool { return errors.Is(err, target) })
}

// makeTemp makes the folder for temporary files of a command.
func makeTemp(workspace *os.Root, name string, r request) error {
	if err := workspace.Mkdir(name, 0o700); err != nil {
		return err
	}
	if r.Drop {
		return workspace.Lchown(name, r.UID, r.GID)
	}
	return nil
}

// removeTemp removes that folder with all that is in it, also folders that their owner has locked.
func removeTemp(workspace *os.Root, name string) {
	if workspace.RemoveAll(name) == nil {
		return
	}
	fs.WalkDir(workspace.FS(), name, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			workspace.Chmod(path, 0o700)
		}
		return nil
	})
	workspace.RemoveAll(name)
}

package browser

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const supported = true

// confine makes the kernel kill a process when the thread that starts it ends, for example because this process was
// killed.
func confine(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// killUsers kills the processes whose profile is dir or below, and reports whether there were any. Chromium's child
// processes have left its process group, but name the folder in their arguments.
func killUsers(dir string) bool {
	found := false
	for _, pid := range usersOf(dir) {
		found = killUser(pid, dir) || found
	}
	return found
}

// killUser kills a process if its profile is dir or below, and reports whether it did. It holds a pidfd (opened by
// package os) before it checks the process, so that it never kills another process that reuses the pid.
func killUser(pid int, dir string) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	defer p.Release()
	args, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err == nil && uses(string(args), dir) && p.Kill() == nil
}

// processes yields all other processes of this machine, with their arguments.
func processes(yield func(pid int, args string) bool) {
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return
	}
	for _, path := range paths {
		pid, err := strconv.Atoi(strings.Split(path, "/")[2])
		args, readErr := os.ReadFile(path)
		if err == nil && readErr == nil && pid != os.Getpid() && !yield(pid, string(args)) {
			return
		}
	}
}

// usersOf returns the processes whose profile is dir or below.
func usersOf(dir string) (pids []int) {
	for pid, args := range processes {
		if uses(args, dir) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// memoryBelow returns the memory in bytes of the processes whose profile is below dir, by the name of the folder in
// dir.
func memoryBelow(dir string) map[string]int64 {
	bytes := make(map[string]int64)
	for pid, args := range processes {
		if rest, ok := profileOf(args, dir+"/"); ok {
			bytes[firstName(rest)] += memoryOf(pid)
		}
	}
	return bytes
}

// memoryOf returns the memory of a process in bytes, without file mappings. Memory that processes share counts for each
// of them.
func memoryOf(pid int) (bytes int64) {
	status, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	for line := range strings.Lines(string(status)) {
		if name, rest, _ := strings.Cut(line, ":"); name == "RssAnon" || name == "RssShmem" {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			bytes += kib << 10
		}
	}
	return bytes
}

// uses reports whether the arguments of a process name dir, or a folder below it, as its data folder.
func uses(args, dir string) bool {
	rest, ok := profileOf(args, dir)
	return ok && firstName(rest) == ""
}

// profileOf finds a data folder that begins with prefix in the arguments of a process. It returns the text after the
// prefix.
func profileOf(args, prefix string) (rest string, ok bool) {
	for _, flag := range [...]string{profileFlag, "--database="} { // the crash handler uses --database
		if _, rest, ok := strings.Cut(args, flag+prefix); ok {
			return rest, true
		}
	}
	return "", false
}

// firstName returns the text up to the end of a folder name in the arguments of a process. Chromium's processes show
// spaces between their arguments.
func firstName(args string) string {
	if end := strings.IndexAny(args, "/ \x00"); end >= 0 {
		return args[:end]
	}
	return args
}

// lock locks a file until it is closed or this process ends. It returns false if another process holds the lock.
func lock(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

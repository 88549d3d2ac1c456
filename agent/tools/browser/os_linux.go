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

// confine has the kernel kill a process when the thread that starts it ends, as it does when this process is killed.
func confine(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// killUsers kills the processes whose profile is a folder or below it, and reports whether there were any. Those that
// Chromium starts have left its group, but name the folder in their arguments.
func killUsers(dir string) bool {
	found := false
	for _, pid := range usersOf(dir) {
		found = killUser(pid, dir) || found
	}
	return found
}

// killUser kills a process if its profile is a folder or below it, and reports whether it was so. The process is held
// before it is looked at (by a pidfd, which package os opens), so that whoever has its number afterwards is not killed.
func killUser(pid int, dir string) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	defer p.Release()
	args, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err == nil && uses(string(args), dir) && p.Kill() == nil
}

// processes yields the processes of this machine but for this one, with their arguments.
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

// usersOf returns the processes whose profile is a folder or below it.
func usersOf(dir string) (pids []int) {
	for pid, args := range processes {
		if uses(args, dir) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// memoryBelow returns how many bytes the processes take whose profile is a folder in dir or below that, by the name of
// that folder.
func memoryBelow(dir string) map[string]int64 {
	bytes := make(map[string]int64)
	for pid, args := range processes {
		if rest, ok := profileOf(args, dir+"/"); ok {
			bytes[firstName(rest)] += memoryOf(pid)
		}
	}
	return bytes
}

// memoryOf returns how many bytes a process takes, without what it reads from files. Memory that some processes share
// counts for each.
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

// uses reports whether the arguments of a process name a folder, or one below it, as the place of its data.
func uses(args, dir string) bool {
	rest, ok := profileOf(args, dir)
	return ok && firstName(rest) == ""
}

// profileOf returns what follows a prefix in the arguments of a process, where they name a place of its data that
// begins with it.
func profileOf(args, prefix string) (rest string, ok bool) {
	for _, flag := range [...]string{profileFlag, "--database="} { // the latter is the crash handler's
		if _, rest, ok := strings.Cut(args, flag+prefix); ok {
			return rest, true
		}
	}
	return "", false
}

// firstName returns what stands before the end of a name of a folder in the arguments of a process. Chromium writes
// spaces between the arguments that its processes show.
func firstName(args string) string {
	if end := strings.IndexAny(args, "/ \x00"); end >= 0 {
		return args[:end]
	}
	return args
}

// lock takes a file for this process until the file is closed or the process ends, and reports whether nobody has it.
func lock(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

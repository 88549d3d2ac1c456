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

// killUsers kills the processes whose arguments name dir or a folder below as their profile, and reports whether there
// were any. Chromium's child processes have left its process group. Those that do not name the folder end with it.
func killUsers(dir string) bool {
	found := false
	for pid, p := range processes() {
		found = uses(p.args, dir) && killUser(pid, dir) || found
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

// running is a process of this machine.
type running struct {
	parent int
	args   string
}

// processes returns all other processes of this machine.
func processes() map[int]running {
	all := make(map[int]running)
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		pid, err := strconv.Atoi(strings.Split(path, "/")[2])
		args, readErr := os.ReadFile(path)
		if err == nil && readErr == nil && pid != os.Getpid() {
			all[pid] = running{parentOf(pid), string(args)}
		}
	}
	return all
}

// parentOf returns the parent of a process, 0 if it has ended.
func parentOf(pid int) int {
	stat, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	_, afterName, _ := strings.Cut(string(stat), ") ")
	_, fields, _ := strings.Cut(afterName, " ") // the state
	parent, _, _ := strings.Cut(fields, " ")
	n, _ := strconv.Atoi(parent)
	return n
}

// belowOf returns the processes whose profile begins with prefix, with the text after it. Child processes of the
// headless shell do not name the profile: theirs is their parent's.
func belowOf(prefix string) map[int]string {
	all, found := processes(), make(map[int]string)
	for pid := range all {
		for at, ancestors := pid, 0; ancestors < maxAncestors; ancestors++ {
			p, ok := all[at]
			if !ok {
				break
			}
			if rest, ok := profileOf(p.args, prefix); ok {
				found[pid] = rest
				break
			}
			at = p.parent
		}
	}
	return found
}

// maxAncestors bounds the way up: below the browser are the zygote and its children.
const maxAncestors = 8

// memoryBelow returns the memory in bytes of the processes whose profile is below dir, by the name of the folder in
// dir.
func memoryBelow(dir string) map[string]int64 {
	bytes := make(map[string]int64)
	for pid, rest := range belowOf(dir + "/") {
		bytes[firstName(rest)] += memoryOf(pid)
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

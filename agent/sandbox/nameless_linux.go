package sandbox

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Nameless returns the size in bytes of a workspace's files that programs have open but that have no name any more.
// Measure cannot see them. Nameless sees the processes of the workspace's user, as far as /proc shows them to this
// process. If this process is in a container, it does not see processes of other containers. It does not see files that
// are only mapped, or in transit through a socket.
func Nameless(w Workspace) int64 {
	dir, err := filepath.EvalSymlinks(w.Dir) // as /proc names it
	if err != nil {
		return 0
	}
	w.Dir = dir
	var space unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, w.Dir, unix.AT_STATX_DONT_SYNC, unix.STATX_BASIC_STATS, &space); err != nil {
		return 0
	}
	n := nameless{w: w, space: space, seen: map[uint64]bool{}}
	proc, err := os.Open("/proc")
	if err != nil {
		return 0
	}
	defer proc.Close() //nolint:errcheck // it was only read
	for {
		names, err := proc.Readdirnames(readStep)
		for _, name := range names {
			if pid, err := strconv.Atoi(name); err == nil && pid != os.Getpid() && userOf(name) == w.UID {
				n.process(name)
			}
		}
		if err != nil {
			return n.bytes
		}
	}
}

// userOf returns the uid of a process, or -1 if it has ended.
func userOf(pid string) int {
	status, err := os.ReadFile(filepath.Join("/proc", pid, "status")) // the owner of the folder in /proc may differ
	if err != nil {
		return -1
	}
	_, rest, _ := bytes.Cut(status, []byte("\nUid:\t"))
	number, _, _ := bytes.Cut(rest, []byte("\t"))
	uid, err := strconv.Atoi(string(number))
	if err != nil {
		return -1
	}
	return uid
}

// nameless counts files without a name, each once.
type nameless struct {
	w     Workspace
	space unix.Statx_t // of the folder of w
	seen  map[uint64]bool
	bytes int64
}

// process counts the open nameless files of a process.
func (n *nameless) process(pid string) {
	dir := filepath.Join("/proc", pid, "fd")
	open, err := os.Open(dir)
	if err != nil {
		return
	}
	defer open.Close() //nolint:errcheck // it was only read
	for {
		names, err := open.Readdirnames(readStep)
		for _, name := range names {
			var s unix.Statx_t // statx with DONT_SYNC does not wait for a file server
			err := unix.Statx(int(open.Fd()), name, unix.AT_STATX_DONT_SYNC, unix.STATX_BASIC_STATS, &s)
			if err != nil || s.Nlink != 0 || s.Mode&unix.S_IFMT != unix.S_IFREG || n.seen[s.Ino] ||
				s.Dev_major != n.space.Dev_major || s.Dev_minor != n.space.Dev_minor || !n.ours(pid, name) {
				continue
			}
			n.seen[s.Ino] = true
			n.bytes += int64(s.Blocks) * blockSize
		}
		if err != nil {
			return
		}
	}
}

// ours reports whether an open file of a process was created in the workspace: below its folder, or below Mount in a
// container that has the workspace mounted.
func (n *nameless) ours(pid, fd string) bool {
	path, err := os.Readlink(filepath.Join("/proc", pid, "fd", fd))
	switch {
	case err != nil:
		return false
	case strings.HasPrefix(path, n.w.Dir+"/"):
		return true
	case !strings.HasPrefix(path, Mount+"/"):
		return false
	}
	var s unix.Statx_t
	err = unix.Statx(unix.AT_FDCWD, fmt.Sprintf("/proc/%s/root%s", pid, Mount), unix.AT_STATX_DONT_SYNC,
		unix.STATX_BASIC_STATS, &s)
	return err == nil && s.Ino == n.space.Ino && s.Dev_major == n.space.Dev_major &&
		s.Dev_minor == n.space.Dev_minor
}

package mcpbridge

import (
	"os"

	"golang.org/x/sys/unix"
)

// hungUp reports whether a file has no reader any more: the other end of its pipe or socket is closed.
func hungUp(f *os.File) (gone bool) {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(fds, 0)
		gone = err == nil && n > 0 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
	})
	return gone
}

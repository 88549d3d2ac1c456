package farhand

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// quiet has a listener take no more connections: the system drops what comes to it. waiting returns how many were made
// before and are not accepted yet, zero if that is not known.
func quiet(l net.Listener) (waiting func() int) {
	none := func() int { return 0 }
	socket, ok := l.(syscall.Conn)
	if !ok {
		return none
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return none
	}
	drop := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K} // nothing of any packet is let through
	attached := false
	err = raw.Control(func(fd uintptr) {
		program := unix.SockFprog{Len: 1, Filter: &drop}
		attached = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program) == nil
	})
	if err != nil || !attached {
		return none
	}
	return func() (n int) {
		_ = raw.Control(func(fd uintptr) { // fails once the listener is closed: then nothing waits
			if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				n = int(info.Unacked) // of a listener: its queue
			}
		})
		return n
	}
}

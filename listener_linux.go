package farhand

import (
	"math"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// tcpFlags is where the flags of a TCP segment are, and tcpSYN the one that asks for a connection (RFC 9293, 3.1).
const (
	tcpFlags = 13
	tcpSYN   = 0x02
)

// quiet has a listener take no more connections: the system drops what asks for one. Connections that are being made
// come about. waiting returns how many are made and not accepted yet. It is nil if the listener cannot do that.
func quiet(l net.Listener) (waiting func() int) {
	socket, ok := l.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil
	}
	filter := []unix.SockFilter{ // connections inherit it, and receive no SYN
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: tcpFlags},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: tcpSYN, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},              // dropped
		{Code: unix.BPF_RET | unix.BPF_K, K: math.MaxUint32}, // let through whole
	}
	attached := false
	err = raw.Control(func(fd uintptr) {
		program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
		attached = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program) == nil
	})
	if err != nil || !attached {
		return nil
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

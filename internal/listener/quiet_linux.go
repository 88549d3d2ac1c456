package listener

import (
	"math"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// tcpFlags is the offset of a TCP segment's flags, and tcpSYN the flag that requests a connection (RFC 9293, 3.1).
const (
	tcpFlags = 13
	tcpSYN   = 0x02
)

// Quiet stops a listener from taking more connections: the kernel drops requests for them. waiting returns how many are
// established but not accepted yet. It is nil if the listener does not support this.
func Quiet(l net.Listener) (waiting func() int) {
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
		_ = raw.Control(func(fd uintptr) { // fails after the listener is closed: then nothing waits
			if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				n = int(info.Unacked) // of a listener: its queue
			}
		})
		return n
	}
}

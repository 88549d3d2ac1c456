package host

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// confine drops rights of this thread, and so of the commands that it starts. scoped reports whether their signals can
// only reach the command's own processes, which requires Landlock 6 or later.
func confine(r request, workspace *os.File) (scoped bool, err error) {
	// No program may gain more rights than its user (set-uid): the supervisor could not kill it.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return false, fmt.Errorf("no_new_privs: %w", err)
	}
	abi, err := landlockABI()
	switch {
	case err != nil && r.Landlock:
		return false, err
	case r.Landlock:
		err = restrictFiles(abi, workspace)
	case err == nil && abi >= abiScopes:
		err = restrictSignals()
	default:
		err = nil // confinement is not required
	}
	if err != nil {
		return false, err
	}
	// The gateway has the same user, or this process is root's, so only the scope can forbid this signal.
	scoped = abi >= abiScopes && unix.Kill(r.Gateway, 0) == unix.EPERM
	if architecture() == 0 && !r.Landlock {
		return scoped, nil
	}
	return scoped, installFilter(filterFor(r, abi, protected(r.Gateway, scoped)))
}

// protected returns the pids that programs may not signal, as kill takes them: the gateway, this process with its
// threads, and their process groups. Unless signals are scoped, it includes -1 (all processes).
func protected(gateway int, scoped bool) []uint32 {
	self := os.Getpid()
	list := []int{self, -self, gateway}
	if !scoped {
		list = append(list, -1)
	}
	if group, err := unix.Getpgid(gateway); err == nil {
		list = append(list, -group)
	}
	threads, _ := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		if tid, err := strconv.Atoi(t.Name()); err == nil && tid != self {
			list = append(list, tid)
		}
	}
	values := make([]uint32, len(list))
	for i, pid := range list {
		values[i] = uint32(int32(pid))
	}
	return values
}

// Offsets in a filter's data, struct seccomp_data of the kernel.
const (
	dataNumber = 0
	dataArch   = 4
	dataArgs   = 16 // 8 bytes each, the lower half first
)

// x32 is the bit that marks system calls of amd64's x32 ABI.
const x32 = 0x40000000

// filter is a seccomp program, which the kernel runs on every system call of a thread and its children.
type filter []unix.SockFilter

func (f *filter) add(code uint16, k uint32, yes, no uint8) {
	*f = append(*f, unix.SockFilter{Code: code, Jt: yes, Jf: no, K: k})
}

func (f *filter) load(offset uint32)      { f.add(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset, 0, 0) }
func (f *filter) ret(value uint32)        { f.add(unix.BPF_RET|unix.BPF_K, value, 0, 0) }
func (f *filter) fail(errno unix.Errno)   { f.ret(unix.SECCOMP_RET_ERRNO | uint32(errno)) }
func (f *filter) skipUnless(value uint32) { f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, value, 0, 1) }

// call adds body for one system call. body must return on every path.
func (f *filter) call(number uintptr, body func(*filter)) {
	var b filter
	body(&b)
	f.load(dataNumber)
	f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, uint32(number), 0, uint8(len(b)))
	*f = append(*f, b...)
}

// deny fails system calls with an errno.
func (f *filter) deny(errno unix.Errno, numbers ...uintptr) {
	for _, n := range numbers {
		f.call(n, func(b *filter) { b.fail(errno) })
	}
}

// denyIf fails a system call if the lower half of an argument equals one of the values.
func (f *filter) denyIf(number uintptr, arg uint32, errno unix.Errno, values ...uint32) {
	f.call(number, func(b *filter) {
		b.load(dataArgs + 8*arg)
		for _, v := range values {
			b.skipUnless(v)
			b.fail(errno)
		}
		b.ret(unix.SECCOMP_RET_ALLOW)
	})
}

// denyUnless fails a system call unless an argument, masked, equals one of the values.
func (f *filter) denyUnless(number uintptr, arg uint32, errno unix.Errno, mask uint32, values ...uint32) {
	f.call(number, func(b *filter) {
		b.load(dataArgs + 8*arg)
		b.add(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, mask, 0, 0)
		for _, v := range values {
			b.skipUnless(v)
			b.ret(unix.SECCOMP_RET_ALLOW)
		}
		b.fail(errno)
	})
}

// filterFor returns the filter for a command. No command may stop a supervisor, which must outlive it, or the gateway.
// abi is the version of Landlock, or 0 without it.
func filterFor(r request, abi int, protected []uint32) filter {
	var f filter
	f.load(dataArch)
	f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, architecture(), 1, 0)
	f.fail(unix.ENOSYS) // 32-bit programs have other system call numbers
	if runtime.GOARCH == "amd64" {
		f.load(dataNumber)
		f.add(unix.BPF_JMP|unix.BPF_JGE|unix.BPF_K, x32, 0, 1)
		f.fail(unix.ENOSYS)
	}
	if r.Landlock {
		f.confined(abi)
	} else {
		f.denyIf(unix.SYS_PRLIMIT64, 0, unix.EPERM, protected...) // RLIMIT_CPU kills
	}
	for _, number := range []uintptr{
		unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_TGKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO,
		unix.SYS_PIDFD_OPEN,
	} {
		f.denyIf(number, 0, unix.EPERM, protected...)
	}
	// Files in memory belong to no process in the accounting: a command could use all memory of the machine. Programs
	// work without them.
	f.deny(unix.ENOSYS, unix.SYS_MEMFD_CREATE, unix.SYS_MEMFD_SECRET)
	f.deny(unix.ENOSYS, unix.SYS_PIDFD_SEND_SIGNAL) // it also accepts a folder of /proc; programs fall back to kill
	// The owner of a file receives its signals, of any kind.
	f.denyIf(unix.SYS_FCNTL, 1, unix.EPERM, unix.F_SETOWN, unix.F_SETOWN_EX)
	f.denyIf(unix.SYS_IOCTL, 1, unix.EPERM, fioSetOwn, unix.SIOCSPGRP)
	f.ret(unix.SECCOMP_RET_ALLOW)
	return f
}

// fioSetOwn is FIOSETOWN of the kernel.
const fioSetOwn = 0x8901

// confined denies what Landlock does not, or not in all versions: all sockets, access to other processes, new
// namespaces, and parts of the kernel that programs do not need here but attacks often use.
func (f *filter) confined(abi int) {
	f.deny(unix.EACCES, unix.SYS_SOCKET, unix.SYS_CONNECT, unix.SYS_BIND)
	// A pair of datagram sockets could send to other sockets.
	f.denyUnless(unix.SYS_SOCKETPAIR, 1, unix.EACCES, 0xf, unix.SOCK_STREAM, unix.SOCK_SEQPACKET)
	f.denyUnless(unix.SYS_PRLIMIT64, 0, unix.EPERM, ^uint32(0), 0) // only of the calling process
	f.denyIf(unix.SYS_PTRACE, 0, unix.EPERM, unix.PTRACE_ATTACH, unix.PTRACE_SEIZE)
	f.call(unix.SYS_CLONE, func(b *filter) {
		b.load(dataArgs)
		b.add(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, newNamespaces, 0, 1)
		b.fail(unix.EPERM)
		b.ret(unix.SECCOMP_RET_ALLOW)
	})
	f.deny(unix.ENOSYS, // programs fall back to clone, or work without
		unix.SYS_CLONE3, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER)
	f.deny(unix.EPERM,
		unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
		unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT,
		unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_OPEN_BY_HANDLE_AT,
		unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
		unix.SYS_SHMGET, unix.SYS_MSGGET, unix.SYS_SEMGET, unix.SYS_MQ_OPEN,
		unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN,
		unix.SYS_USERFAULTFD, unix.SYS_FANOTIFY_INIT, unix.SYS_SYSLOG, unix.SYS_QUOTACTL, unix.SYS_ACCT,
		unix.SYS_KEXEC_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_REBOOT,
		unix.SYS_SWAPON, unix.SYS_SWAPOFF)
	if abi < abiTruncate {
		f.deny(unix.EPERM, unix.SYS_TRUNCATE) // Landlock only prevents opening those files
	}
}

// newNamespaces are the flags of clone that create namespaces.
const newNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// architecture returns the audit number of this architecture, or 0 if the filter does not support it. With 0 there is
// no sandbox, and programs on the host can stop their supervisor.
func architecture() uint32 {
	switch runtime.GOARCH {
	case "amd64":
		return unix.AUDIT_ARCH_X86_64
	case "arm64":
		return unix.AUDIT_ARCH_AARCH64
	}
	return 0
}

// probeFilter returns why filters are unavailable, or nil.
func probeFilter() error {
	if architecture() == 0 {
		return fmt.Errorf("programs can be confined only on amd64 and arm64, not on %s", runtime.GOARCH)
	}
	action := uint32(unix.SECCOMP_RET_ERRNO)
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	if e != 0 {
		return fmt.Errorf("this kernel has no seccomp filters: %w", e)
	}
	return nil
}

// installFilter installs a filter for this thread and its children.
func installFilter(f filter) error {
	program := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program)))
	if e != 0 {
		return fmt.Errorf("seccomp: %w", e)
	}
	return nil
}

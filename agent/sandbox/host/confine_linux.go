package host

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// confine takes rights from this thread, and so from the commands that it starts. It reports whether signals of this
// thread reach nobody but these: only with Landlock of version 6 or later.
func confine(r request, workspace *os.File) (scoped bool, err error) {
	// No program of theirs has more rights than its user: what has could not be killed.
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
		err = nil // there is no need for it
	}
	if err != nil {
		return false, err
	}
	// The gateway has the same user, or this process is root's, so nothing else forbids it.
	scoped = abi >= abiScopes && unix.Kill(r.Gateway, 0) == unix.EPERM
	if architecture() == 0 && !r.Landlock {
		return scoped, nil
	}
	return scoped, installFilter(filterFor(r, abi, protected(r.Gateway, scoped)))
}

// protected returns what programs may not send signals to, as kill takes it: the gateway, this process with its
// threads, their process groups, and everybody, unless signals are scoped.
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

// The parts of a filter's data: struct seccomp_data of the kernel.
const (
	dataNumber = 0
	dataArch   = 4
	dataArgs   = 16 // of 8 bytes each, the lower half first
)

// x32 is set in the numbers of system calls of amd64's third kind.
const x32 = 0x40000000

// filter is a program for the kernel that looks at every system call of a thread and of what that starts.
type filter []unix.SockFilter

func (f *filter) add(code uint16, k uint32, yes, no uint8) {
	*f = append(*f, unix.SockFilter{Code: code, Jt: yes, Jf: no, K: k})
}

func (f *filter) load(offset uint32)      { f.add(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset, 0, 0) }
func (f *filter) ret(value uint32)        { f.add(unix.BPF_RET|unix.BPF_K, value, 0, 0) }
func (f *filter) fail(errno unix.Errno)   { f.ret(unix.SECCOMP_RET_ERRNO | uint32(errno)) }
func (f *filter) skipUnless(value uint32) { f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, value, 0, 1) }

// call adds what follows for a system call; body ends with a return in every case.
func (f *filter) call(number uintptr, body func(*filter)) {
	var b filter
	body(&b)
	f.load(dataNumber)
	f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, uint32(number), 0, uint8(len(b)))
	*f = append(*f, b...)
}

// deny fails system calls.
func (f *filter) deny(errno unix.Errno, numbers ...uintptr) {
	for _, n := range numbers {
		f.call(n, func(b *filter) { b.fail(errno) })
	}
}

// denyIf fails a system call if an argument, its lower half, has one of some values.
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

// denyUnless fails a system call unless an argument, its bits of mask, has one of some values.
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

// filterFor returns the filter for a command. Nobody may stop a supervisor, which has to outlive its command, nor the
// gateway. abi is the version of Landlock, 0 without.
func filterFor(r request, abi int, protected []uint32) filter {
	var f filter
	f.load(dataArch)
	f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, architecture(), 1, 0)
	f.fail(unix.ENOSYS) // programs of 32 bits have other numbers
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
	// Files in memory are counted as nobody's: a command could take all of the machine's. Programs do without.
	f.deny(unix.ENOSYS, unix.SYS_MEMFD_CREATE, unix.SYS_MEMFD_SECRET)
	f.deny(unix.ENOSYS, unix.SYS_PIDFD_SEND_SIGNAL) // takes a folder of /proc, too; programs fall back to kill
	// Who owns a file gets its signals, whichever they are.
	f.denyIf(unix.SYS_FCNTL, 1, unix.EPERM, unix.F_SETOWN, unix.F_SETOWN_EX)
	f.denyIf(unix.SYS_IOCTL, 1, unix.EPERM, fioSetOwn, unix.SIOCSPGRP)
	f.ret(unix.SECCOMP_RET_ALLOW)
	return f
}

// fioSetOwn is FIOSETOWN.
const fioSetOwn = 0x8901

// confined denies what Landlock does not, or not in all its versions: sockets of every kind, other processes, other
// name spaces, and parts of the kernel that no program needs here and many an attack does.
func (f *filter) confined(abi int) {
	f.deny(unix.EACCES, unix.SYS_SOCKET, unix.SYS_CONNECT, unix.SYS_BIND)
	// A pair of datagram sockets could send to others.
	f.denyUnless(unix.SYS_SOCKETPAIR, 1, unix.EACCES, 0xf, unix.SOCK_STREAM, unix.SOCK_SEQPACKET)
	f.denyUnless(unix.SYS_PRLIMIT64, 0, unix.EPERM, ^uint32(0), 0) // its own only
	f.denyIf(unix.SYS_PTRACE, 0, unix.EPERM, unix.PTRACE_ATTACH, unix.PTRACE_SEIZE)
	f.call(unix.SYS_CLONE, func(b *filter) {
		b.load(dataArgs)
		b.add(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, newNamespaces, 0, 1)
		b.fail(unix.EPERM)
		b.ret(unix.SECCOMP_RET_ALLOW)
	})
	f.deny(unix.ENOSYS, // programs fall back to clone, and to doing without
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
		f.deny(unix.EPERM, unix.SYS_TRUNCATE) // of files that Landlock only keeps from being opened
	}
}

// newNamespaces are the flags of clone that make name spaces.
const newNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// architecture returns the kernel's number of this one, 0 if the filter is not known to hold there: then there is no
// sandbox, and programs on the host are not kept from stopping their supervisor.
func architecture() uint32 {
	switch runtime.GOARCH {
	case "amd64":
		return unix.AUDIT_ARCH_X86_64
	case "arm64":
		return unix.AUDIT_ARCH_AARCH64
	}
	return 0
}

// probeFilter says why filters cannot be used.
func probeFilter() error {
	if architecture() == 0 {
		return fmt.Errorf("programs are confined on amd64 and arm64 only, this is %s", runtime.GOARCH)
	}
	action := uint32(unix.SECCOMP_RET_ERRNO)
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	if e != 0 {
		return fmt.Errorf("this kernel has no seccomp filters: %w", e)
	}
	return nil
}

// installFilter has the kernel use a filter for this thread and what it starts.
func installFilter(f filter) error {
	program := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program)))
	if e != 0 {
		return fmt.Errorf("seccomp: %w", e)
	}
	return nil
}

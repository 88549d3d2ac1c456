package host

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// runSupervisor runs a supervisor and exits, if this process was started as one. Otherwise it returns.
func runSupervisor() {
	if len(os.Args) != 1 || os.Args[0] != supervisorName {
		return
	}
	if domain, err := unix.GetsockoptInt(supervisorSocket, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil ||
		domain != unix.AF_UNIX {
		return // the program was only named so
	}
	code := 0
	if supervise() != nil {
		code = 1
	}
	syscall.Exit(code) // not os.Exit: there the race detector waits for a second
}

// service is a supervisor process. It uses a single thread, because thread switches take a large part of a short
// command's time. Also, no other thread may reap processes while this one kills them by pid.
type service struct {
	starter starter
	temp    temp
}

// supervise runs commands one by one, until the gateway closes its end of the socket or is gone.
func supervise() error {
	runtime.LockOSThread()
	// Commands must not inherit the gateway's open files: sockets, logs, files that commands may not open.
	if err := unix.CloseRange(supervisorSocket, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		unix.CloseOnExec(supervisorSocket) // before Linux 5.11
	}
	// Orphaned processes of the command become children of this process. Programs of the same user cannot read its
	// memory.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	// The supervisor must survive signals that end the gateway, to kill its command. It catches them instead of
	// ignoring them, because programs would inherit ignored signals.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	var s service
	defer s.temp.remove()
	for {
		r, files, err := receive()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		message, err := frame(s.run(r, files))
		if err != nil {
			return err
		}
		if _, err := (socket{}).Write(message); err != nil {
			return nil // the gateway is gone
		}
	}
}

// receive waits for a request. It returns io.EOF when the gateway has closed the socket.
func receive() (request, []*os.File, error) {
	var r request
	first, control := make([]byte, 1), make([]byte, unix.CmsgSpace(4*(fdCount+1)))
	var n, size int
	err := retry(func() (err error) {
		n, size, _, _, err = unix.Recvmsg(supervisorSocket, first, control, unix.MSG_CMSG_CLOEXEC)
		return err
	})
	if n == 0 && err == nil {
		err = io.EOF
	}
	if err != nil {
		return r, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:size])
	if err != nil {
		return r, nil, err
	}
	var files []*os.File
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return r, nil, err
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "of a request"))
		}
	}
	err = readFrame(io.MultiReader(bytes.NewReader(first), socket{}), &r)
	if want := fdCount + r.stdin(); err == nil && len(files) != want {
		err = fmt.Errorf("%d descriptors", len(files))
	}
	return r, files, err
}

// socket reads from and writes to the gateway.
type socket struct{}

func (socket) Read(p []byte) (n int, err error) {
	err = retry(func() (err error) { n, err = unix.Read(supervisorSocket, p); return err })
	if n <= 0 && err == nil {
		return 0, io.EOF
	}
	return max(n, 0), err
}

func (socket) Write(p []byte) (int, error) {
	for done := 0; done < len(p); {
		err := retry(func() error {
			n, err := unix.Write(supervisorSocket, p[done:])
			done += max(n, 0)
			return err
		})
		if err != nil {
			return done, err
		}
	}
	return len(p), nil
}

// retry calls f again as long as a signal interrupts it (EINTR).
func retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}
